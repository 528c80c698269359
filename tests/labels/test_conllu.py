"""CoNLL-U files (labels/formats/conllu): the syntactic words, with any column or key as the tag."""

import pytest
from labeling import read

CONLLU = """# sent_id = 1
# text = Vámonos al mar
1-2	Vámonos	_	_	_	_	_	_	_	_
1	Vamos	ir	VERB	V	Mood=Imp|Number=Plur	0	root	_	NER=O
2	nos	nosotros	PRON	P	Number=Plur	1	obj	_	_
3-4	al	_	_	_	_	_	_	_	_
3	a	a	ADP	E	_	5	case	_	_
4	el	el	DET	D	Number=Sing	5	det	_	_
5	mar	mar	NOUN	N	Number=Sing	1	obl	_	NER=B-LOC|SpaceAfter=No
5.1	_	_	VERB	_	_	_	_	_	_

"""


def test_conllu_gives_the_syntactic_words_without_ranges_and_empty_nodes(tmp_path):
    (sentence,) = read(tmp_path / "x.conllu", CONLLU)
    assert sentence.words == ["Vamos", "nos", "a", "el", "mar"]
    assert sentence.tags == ["VERB", "PRON", "ADP", "DET", "NOUN"]
    assert sentence.lines == [4, 5, 7, 8, 9]
    assert sentence.text == "Vámonos al mar"


@pytest.mark.parametrize(
    ("column", "tags"),
    [
        ("XPOS", ["V", "P", "E", "D", "N"]),
        ("deprel", ["root", "obj", "case", "det", "obl"]),
        ("misc:NER", ["O", "_", "_", "_", "B-LOC"]),
        ("feats:Number", ["Plur", "Plur", "_", "Sing", "Sing"]),
        ("4", ["VERB", "PRON", "ADP", "DET", "NOUN"]),
    ],
)
def test_any_column_or_key_of_conllu_can_be_the_tag(tmp_path, column, tags):
    assert read(tmp_path / "x.conllu", CONLLU, tag_column=column)[0].tags == tags


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("1\ta\tb\n", r"x.conllu:1: 3 columns.* 10"), ("x" + "\t_" * 9, r"must number the word, got 'x'")],
)
def test_a_broken_conllu_line_is_named(tmp_path, line, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(tmp_path / "x.conllu", line)


def test_where_no_comment_gives_the_text_the_words_say_what_follows_them(tmp_path):
    rows = [("研究", "SpaceAfter=No"), ("生活", "X=1|SpaceAfter=No"), ("BERT", "_"), ("ok", "_")]
    lines = [f"{number}\t{form}\t_\tX\t_\t_\t_\t_\t_\t{misc}" for number, (form, misc) in enumerate(rows, start=1)]
    spaced = [line.replace("SpaceAfter=No", "_") for line in lines]
    first, second = read(tmp_path / "x.conllu", "\n".join([*lines, "", *spaced]))
    assert first.text == "研究生活BERT ok"
    assert second.text is None

"""Labeled files of every kind are read word for word; what is wrong with them is said with file and line."""

import gzip
import json

import pytest

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.tagged import read_labeled_texts, read_tagged

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


def write(path, text):
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def read(path, text, tagged=True, **settings):
    return list(read_tagged(write(path, text), TaggedConfig(**settings), tagged=tagged))


@pytest.mark.parametrize("name", ["x.conll", "x.txt", "x.tsv", "x.conll.gz"])
@pytest.mark.parametrize("separator", ["\t", " "])
@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
def test_columns_are_read_with_tabs_and_spaces_with_and_without_a_final_blank_line(tmp_path, name, separator, end):
    text = f"Anna{separator}B-PER\nruns{separator}O\n\n\nHome{separator}O{end}"
    found = read(tmp_path / name, text)
    assert [(s.words, s.tags) for s in found] == [(["Anna", "runs"], ["B-PER", "O"]), (["Home"], ["O"])]
    assert found[1].place(0).endswith(f"{name}:5")


def test_columns_are_chosen_by_number_or_name(tmp_path):
    text = "1 Anna NNP B-NP B-PER\n2 runs VBZ B-VP O\n"
    columns = ["id", "word", "pos", "chunk", "ner"]
    path = tmp_path / "x.conll"
    assert read(path, text, word_column="2")[0].tags == ["B-PER", "O"]
    assert read(path, text, word_column="2", tag_column="-2")[0].tags == ["B-NP", "B-VP"]
    named = read(path, text, columns=columns, word_column="word", tag_column="POS")[0]
    assert (named.words, named.tags) == (["Anna", "runs"], ["NNP", "VBZ"])
    assert read(path, "# global.columns = FORM TAG NOTE\na X 1\n", tag_column="tag")[0].tags == ["X"]


def test_document_starts_and_comments_are_passed_over_and_hashtags_are_words(tmp_path):
    text = "-DOCSTART- -X- O\n\n# sent_id = 3\n#yes NN O\n# NN O\n! . O\n\n#begin document x\na NN O\n"
    assert [s.words for s in read(tmp_path / "x.conll", text)] == [["#yes", "#", "!"], ["a"]]
    text = "# a comment\n#tag\tO\n#\tO\n"
    assert [s.words for s in read(tmp_path / "y.conll", text)] == [["#tag", "#"]]


def test_empty_and_odd_words_of_a_file_with_tabs_are_words(tmp_path):
    words = ["", "\u200b", "\u00a0", "שלום", "👨‍👩‍👧", "a b"]
    text = "".join(f"{word}\tO\n" for word in words)
    assert read(tmp_path / "x.conll", text)[0].words == words


@pytest.mark.parametrize(
    ("text", "settings", "complaint"),
    [
        ("a\tO\nb\tO\tO\n", {}, r"x.conll:2: 3 columns where line 1 has 2.*tabs"),
        ("a O\n\nb\n", {}, r"x.conll:3: 1 column where line 1 has 2.*spaces"),
        ("a\tO\nb\t\n", {}, r"x.conll:2: the tag is empty"),
        ("a\tO\n", {"tag_column": "3"}, r"x.conll:1: tag_column=3, but there are 2 columns"),
        ("a\tO\n", {"tag_column": "0"}, r"the first is 1, the last -1"),
        ("a\tO\n", {"tag_column": "ner"}, r"x.conll:1: tag_column=ner: the columns have no names"),
        ("a\n", {}, r"cannot hold both words and tags"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(tmp_path / "x.conll", text, **settings)


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "x.conll").write_bytes(b"a\tO\n\xff\tO\n")
    with pytest.raises(ValueError, match=r"x.conll:2: not UTF-8"):
        list(read_tagged(str(tmp_path / "x.conll"), TaggedConfig()))


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
    [("1\ta\tb\n", r"x.conllu:1: 3 columns where CoNLL-U has 10"), ("x" + "\t_" * 9, r"must number the word, got 'x'")],
)
def test_a_broken_conllu_line_is_named(tmp_path, line, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(tmp_path / "x.conllu", line)


def test_json_lines_with_tokens_or_with_spans(tmp_path):
    records = [
        {"tokens": ["Anna", "runs"], "tags": ["B-PER", "O"]},
        {"text": "Anna Lee met Bo.", "spans": [{"start": 13, "end": 15, "label": "PER"}, [0, 8, "PER"]]},
    ]
    text = "".join(json.dumps(record) + "\n" for record in records)
    found = read(tmp_path / "x.jsonl", text)
    assert [read(tmp_path / f"x.{suffix}", text)[0].tags for suffix in ("json", "ndjson")] == [found[0].tags] * 2
    assert found[0].tags == ["B-PER", "O"]
    assert found[1].words == ["Anna", "Lee", "met", "Bo", "."]
    assert found[1].tags == ["B-PER", "I-PER", "O", "B-PER", "O"]
    assert [found[1].text[a:b] for a, b in found[1].offsets] == found[1].words


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ("{", "x.jsonl:1: not JSON"),
        ("[1]", "x.jsonl:1: expected an object, got list"),
        ('{"tokens": ["a"], "tags": []}', "1 words need as many tags, got 0 tags"),
        ('{"tokens": ["a"], "ents": []}', "no key 'tags'; the keys are tokens, ents"),
        ('{"tokens": [1], "tags": ["O"]}', "a word must be text, got 1"),
        ('{"words_": 3}', "expected tokens and tags, or a text with spans"),
        ('{"text": "ab", "spans": [[0, 9, "X"]]}', "within the 2 characters"),
        ('{"text": "a b", "spans": [[0, 3, "X"], [2, 3, "Y"]]}', "overlaps the one before it"),
        ('{"text": "a  b", "spans": [[1, 2, "X"]]}', "holds no word"),
        ('{"text": "a b", "spans": null}', "x.jsonl:1: spans must be a list, got None"),
        ('{"text": "a b", "spans": {"start": 0}}', "x.jsonl:1: spans must be a list"),
        ('{"text": "a b", "spans": [5]}', "a span is .*, got 5"),
    ],
)
def test_a_wrong_record_is_named(tmp_path, record, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(tmp_path / "x.jsonl", record + "\n")


def test_a_saved_dataset_is_read_with_the_names_of_its_labels(tmp_path):
    datasets = pytest.importorskip("datasets")
    sequence = datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER"]))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": sequence})
    rows = datasets.Dataset.from_dict({"tokens": [["Anna", "runs"]], "ner_tags": [[1, 0]]}, features=features)
    datasets.DatasetDict({"train": rows, "validation": rows}).save_to_disk(str(tmp_path / "set"))
    (sentence,) = read_tagged(str(tmp_path / "set"), TaggedConfig(), split="validation")
    assert (sentence.words, sentence.tags) == (["Anna", "runs"], ["B-PER", "O"])


def test_a_part_that_a_dataset_lacks_and_a_label_it_hides_are_named(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = datasets.Dataset.from_dict({"text": ["x", "y"], "label": [1, -1]}, features=features)
    datasets.DatasetDict({"train": rows}).save_to_disk(str(tmp_path / "set"))
    with pytest.raises(ValueError, match=r"set has no part 'validation'; its parts are train"):
        list(read_labeled_texts(str(tmp_path / "set"), TaggedConfig(), split="validation"))
    with pytest.raises(ValueError, match=r"set:2: label holds -1, but labels are 0 to 1"):
        list(read_labeled_texts(str(tmp_path / "set"), TaggedConfig()))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no file .*write hf:nope"):
        list(read_tagged("nope", TaggedConfig()))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.jsonl", '{"text": "good, really", "label": 1}\n{"text": "bad", "label": 0}\n'),
        ("x.csv", 'text,label\n"good, really",1\nbad,0\n'),
        ("x.tsv", "text\tlabel\ngood, really\t1\nbad\t0\n"),
    ],
)
def test_texts_with_a_label_are_one_word_with_one_tag(tmp_path, name, text):
    found = list(read_labeled_texts(write(tmp_path / name, text), TaggedConfig()))
    assert [(s.words, s.tags) for s in found] == [(["good, really"], ["1"]), (["bad"], ["0"])]


def test_a_row_with_another_number_of_columns_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"x.csv:3: another number of columns"):
        list(read_labeled_texts(write(tmp_path / "x.csv", "text,label\na,1\nb\n"), TaggedConfig()))

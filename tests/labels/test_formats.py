"""Every format gives back what it was given: sentences are written, read, and equal; other lines stay as they were."""

import json

import pytest

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import FORMATS, format_named
from data_pipelines.labels.formats.conll import has_columns
from data_pipelines.labels.formats.json_spans import DOCCANO
from data_pipelines.labels.formats.label_studio import LABEL_STUDIO
from data_pipelines.labels.formats.spacy_docs import SPACY, read_docs, write_docs
from data_pipelines.labels.placing import character_spans, placed
from data_pipelines.labels.records import SPAN_RULE, unwrapped
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.tagged import read_labeled_texts, read_tagged
from data_pipelines.labels.word_splitting import WordSplitter
from data_pipelines.text.lines import Line

TEXTS = {
    "Anna Müller wohnt in Köln .": ["B-PER", "I-PER", "O", "O", "B-LOC", "O"],
    "王 小明 👍🏽 שלום": ["B-PER", "I-PER", "I-PER", "O", "B-LOC"],
    'she said: "x" & <b>': ["O", "O", "O", "O", "B-X", "O", "O", "O", "B-Y", "B-Y"],
    "  two  spaces ": ["O", "B-LOC"],
}


def sentences(texts=TEXTS) -> list[Sentence]:
    found = []
    for text, tags in texts.items():
        offsets = WordSplitter(SPAN_RULE).places(text)
        found.append(Sentence([text[a:b] for a, b in offsets], tags, "", [], text, offsets))
    return found


def test_names_and_suffixes_are_rows_of_one_table():
    assert (format_named("doccano"), format_named("label-studio")) == (DOCCANO, LABEL_STUDIO)
    assert format_named("spacy") == SPACY == FORMATS[".spacy"]
    assert (SPACY.sentences, SPACY.write) == (read_docs, write_docs)


def test_a_record_that_is_no_task_stays_as_it_is():
    assert unwrapped({"data": "x", "text": "y"}) == {"data": "x", "text": "y"}
    assert unwrapped({"id": 1, "data": {"text": "y", "who": "z"}}) == {"id": 1, "text": "y", "who": "z"}


def text_of(name, given, **config) -> str:
    return "".join(format_named(name).write(given, TaggedConfig(**config)))


def facts(found, *fields):
    return [[getattr(sentence, field) for field in fields] for sentence in found]


@pytest.mark.parametrize(
    ("name", "file", "config", "fields"),
    [
        ("conll", "x.conll", {}, ("words", "tags")),
        ("conllu", "x.conllu", {"tag_column": "misc:NER"}, ("words", "text")),
        ("spans", "x.jsonl", {}, ("words", "tags", "text")),
        ("doccano", "x.jsonl", {}, ("words", "tags", "text", "offsets")),
        ("label-studio", "x.json", {}, ("words", "tags", "text", "offsets")),
    ],
)
def test_what_is_written_is_read_again(tmp_path, name, file, config, fields):
    given = sentences()
    if name == "conllu":
        given = [sentence._replace(text=sentence.text.strip(), offsets=None) for sentence in given]
    (tmp_path / file).write_text(text_of(name, given, **config), encoding="utf-8")
    found = list(read_tagged(str(tmp_path / file), TaggedConfig(**config)))
    assert facts(found, *fields) == facts(given, *fields)
    assert [[tag.replace("_", "O") for tag in each.tags] for each in found] == [each.tags for each in given]


def test_words_and_old_tags_of_a_record_are_no_data_of_a_task(tmp_path):
    record = {"tokens": ["can", "not"], "tags": ["O", "O"], "id": 7}
    given = Sentence(record["tokens"], ["B-X", "I-X"], "", [], "cannot", None, record)
    (tmp_path / "x.json").write_text(text_of("label-studio", [given]))
    (found,) = read_tagged(str(tmp_path / "x.json"), TaggedConfig())
    assert (found.text, found.words, found.tags) == ("cannot", ["cannot"], ["B-X"])
    assert json.loads((tmp_path / "x.json").read_text())[0]["data"] == {"id": 7, "text": "cannot"}


@pytest.mark.parametrize("name", ["spans", "doccano", "label-studio"])
def test_an_empty_text_and_no_sentence_at_all_come_back(tmp_path, name):
    file = tmp_path / ("x.json" if name == "label-studio" else "x.jsonl")
    for given in ([Sentence([], [], "", [], "", [])], []):
        file.write_text(text_of(name, given))
        assert facts(read_tagged(str(file), TaggedConfig()), "words", "tags") == facts(given, "words", "tags")


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_brat_marks_places_in_the_text_beside_it(tmp_path, encoding):
    given = [*sentences(), Sentence([], [], "", [], "", []), *sentences({"Ende": ["B-LOC"]})]
    text = "\n".join(sentence.text for sentence in given)
    (tmp_path / "x.txt").write_text(text, encoding=encoding, newline="")
    (tmp_path / "x.ann").write_text(
        text_of("brat", given) + "R1\tnear Arg1:T1 Arg2:T2\n#1\tNote T1\tx\n", encoding=encoding
    )
    fields = ("words", "tags", "text", "offsets")
    config = TaggedConfig(encoding=encoding)
    assert facts(read_tagged(str(tmp_path / "x.ann"), config), *fields) == facts(given, *fields)
    assert facts(read_tagged(str(tmp_path), config), *fields) == facts(given, *fields)


def test_brat_spans_over_lines_join_them_and_wrong_ones_are_refused_with_their_line(tmp_path):
    (tmp_path / "x.txt").write_bytes("Anna\r\nMüller lacht\r\nEnde".encode())
    (tmp_path / "x.ann").write_text("T2\tLOC 20 24\tEnde\nT1\tPER 0 12\tAnna Müller\n", encoding="utf-8")
    found = list(read_tagged(str(tmp_path / "x.ann"), TaggedConfig()))
    assert facts(found, "words", "tags") == [
        [["Anna", "Müller", "lacht"], ["B-PER", "I-PER", "O"]],
        [["Ende"], ["B-LOC"]],
    ]
    for wrong in ("T1\tPER 0 4\tBoris\n", "T1\tPER 0 4;6 9\tAnna Mül\nT2\tPER 7 12\tAnna\n", "T1 PER 0 4 Anna\n"):
        (tmp_path / "x.ann").write_text(wrong, encoding="utf-8")
        with pytest.raises(ValueError, match=r"x\.ann:[12]: "):
            list(read_tagged(str(tmp_path / "x.ann"), TaggedConfig()))
    (tmp_path / "x.ann").write_text("")
    (tmp_path / "x.txt").unlink()
    with pytest.raises(ValueError, match=r"x\.txt"):
        list(read_tagged(str(tmp_path / "x.ann"), TaggedConfig()))


def test_label_studio_reads_what_people_marked_before_what_models_predicted(tmp_path):
    def marks(label):
        return [{"type": "labels", "value": {"start": 0, "end": 4, "text": "anna", "labels": [label]}}]

    tasks = [
        {"id": 7, "data": {"text": "anna"}, "annotations": [{"result": marks("PER")}], "predictions": [{"result": []}]},
        {"data": {"text": "anna"}, "annotations": [{"was_cancelled": True, "result": []}, {"result": marks("LOC")}]},
    ]
    (tmp_path / "x.json").write_text(json.dumps(tasks, indent=1))
    assert [each.tags for each in read_tagged(str(tmp_path / "x.json"), TaggedConfig())] == [["B-PER"], ["B-LOC"]]
    tasks[1]["annotations"] = []
    (tmp_path / "x.json").write_text(json.dumps(tasks, indent=1))
    with pytest.raises(ValueError, match=r"x\.json:\d+: .*spans"):
        list(read_tagged(str(tmp_path / "x.json"), TaggedConfig()))


@pytest.mark.parametrize("name", ["doccano", "label-studio"])
def test_texts_with_a_label_come_back(tmp_path, name):
    given = [Sentence(["Guten Tag,\nWelt"], ["nett"], "", [], record={"id": 3}), Sentence(["x"], ["y"], "", [])]
    file = tmp_path / "x.json"
    file.write_text("".join(FORMATS[name].write_texts(given, TaggedConfig())))
    assert facts(read_labeled_texts(str(file), TaggedConfig()), "words", "tags") == facts(given, "words", "tags")
    assert '"id": 3' in file.read_text()


def test_other_marks_of_spans_are_read(tmp_path):
    records = [
        {"text": "anna", "entities": [{"id": 1, "label": "PER", "start_offset": 0, "end_offset": 4}]},
        {"text": "annab", "spans": [[0, 4, "PER"]], "tokens": [{"start": 0, "end": 4}, {"start": 4, "end": 5}]},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, records)))
    found = facts(read_tagged(str(tmp_path / "x.jsonl"), TaggedConfig()), "words", "tags")
    assert found == [[["anna"], ["B-PER"]], [["anna", "b"], ["B-PER", "O"]]]


def test_a_list_of_records_names_the_line_of_what_is_wrong(tmp_path):
    (tmp_path / "x.json").write_text('[\n{"tokens": ["a"], "tags": ["O"]},\n\n{"tokens": ["a"]}\n]')
    with pytest.raises(ValueError, match=r"x\.json:4: .*tags"):
        list(read_tagged(str(tmp_path / "x.json"), TaggedConfig()))
    for broken in ('[{"tokens": ["a"], "tags": ["O"]}', "[]\n{}"):
        (tmp_path / "x.json").write_text(broken)
        with pytest.raises(ValueError, match=r"x\.json:\d: "):
            list(read_tagged(str(tmp_path / "x.json"), TaggedConfig()))


def test_plain_tags_are_no_spans():
    given = placed(Sentence(["a"], ["NOUN"], "", []))
    with pytest.raises(ValueError, match=r"NOUN.*conll"):
        character_spans(given)


def test_words_without_a_text_get_one_in_which_each_has_its_place():
    given = placed(Sentence(["(", "a", ")", ",", "", "b c"], ["O"] * 6, "", []))
    assert [given.text[a:b] for a, b in given.offsets] == given.words


def lines_of(text: str) -> list[Line]:
    return [Line(line, number, True) for number, line in enumerate(text.split("\n"), start=1)]


@pytest.mark.parametrize(
    ("text", "config", "filled"),
    [
        ("a\tNN\tO\nb\tVB\tB-X", {}, "a\tNN\tB-X\nb\tVB\tI-X\n"),
        ("a  NN O \nb VB  B-X", {}, "a  NN B-X \nb VB  I-X\n"),
        ("a NN\nb VB", {}, "a NN B-X\nb VB I-X\n"),  # the last column holds no tag of the model
        ("a\nb", {}, "a B-X\nb I-X\n"),
        ("a\nb", {"tag_column": "ner"}, "a B-X\nb I-X\n"),
        ("a\tO\nb\tO", {"tag_column": "ner"}, "a\tB-X\nb\tI-X\n"),
        ("# id = 1\na O 7\nb O 8\n", {"tag_column": "2"}, "# id = 1\na B-X 7\nb I-X 8\n"),
        ("# global.columns = FORM NER X\na O 7\nb O 8\n", {"tag_column": "ner"}, None),
        ("a 7\nb 8\n", {"tag_column": "3"}, "a 7 B-X\nb 8 I-X\n"),
    ],
)
def test_conll_keeps_all_but_the_column_of_tags(text, config, filled):
    check_filled("conll", text, config, filled or text.replace(" O ", " B-X ", 1).replace(" O ", " I-X "))


ROWS = "\n".join(
    row.replace(" ", "\t") if row[0] != "#" else row
    for row in (
        "# sent_id = 1",
        "1-2 ab _ _ _ _ _ _ _ _",
        "1 a A X Y F=1|H=2 0 root _ SpaceAfter=No",
        "1.1 e _ _ _ _ _ _ _ _",
        "2 b B X Y _ 1 obj _ NER=O",
    )
)


@pytest.mark.parametrize(
    ("column", "changes"),
    [
        ("", [("A\tX", "A\tB-X"), ("B\tX", "B\tI-X")]),
        ("xpos", [("A\tX\tY", "A\tX\tB-X"), ("B\tX\tY", "B\tX\tI-X")]),
        ("misc:NER", [("SpaceAfter=No", "SpaceAfter=No|NER=B-X"), ("NER=O", "NER=I-X")]),
        ("feats:G", [("F=1|H=2", "F=1|G=B-X|H=2"), ("Y\t_\t1", "Y\tG=I-X\t1")]),
    ],
)
def test_conllu_keeps_comments_ranges_empty_nodes_and_all_other_columns(column, changes):
    filled = ROWS
    for old, new in changes:
        filled = filled.replace(old, new)
    check_filled("conllu", ROWS, {"tag_column": column}, filled + "\n")


def check_filled(name, text, config, filled):
    form, settings = format_named(name), TaggedConfig(**config)
    (sentence,) = form.sentences(lines_of(text), "x", settings, False)
    fill = form.filler(settings, ["O", "B-X", "I-X"])
    assert "\n".join(fill(lines_of(text), sentence._replace(tags=["B-X", "I-X"]))) == filled


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a O\nb B-X\n\nc E-X", True),
        ("a\tNN\tO\n-DOCSTART- -X- O\nb\tNN\tO", True),
        ("anna paints\nboris sings", False),
        ("1\tanna paints\n2\tboris", False),
        ("", False),
        ("a\nb", False),
        ("a O\nb c O", False),
    ],
)
def test_columns_are_told_by_labels_that_the_model_knows(text, columns):
    assert has_columns(lines_of(text), TaggedConfig(), ["O", "B-X", "I-X"]) is columns


def test_spacy_is_asked_for_by_the_name_of_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "spacy", None)
    (tmp_path / "x.spacy").write_bytes(b"\x00\xff")
    with pytest.raises(ValueError, match=r"bertkit\[spacy\]"):
        list(read_tagged(str(tmp_path / "x.spacy"), TaggedConfig()))
    with pytest.raises(ValueError, match=r"bertkit\[spacy\]"):
        list(format_named("spacy").write(sentences(), TaggedConfig()))

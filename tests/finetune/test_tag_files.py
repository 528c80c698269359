"""`bertkit tag`: files of every format enter and come back with other tags, and what is wrong in them is named."""

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from taggers import LABELS, TAGGER_SIZES
from telling import tells

import bertkit
from bertkit.cli import main
from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.predict import labeled_text
from bertkit.finetune.predict.inputs import Part, Reading, kind_of, text_inputs, word_inputs
from bertkit.finetune.predict.labeled_text import LabeledText
from bertkit.finetune.predict.outputs import TEXT_OUTPUTS, Answer
from bertkit.finetune.predict.tagging import Tagging
from bertkit.finetune.train import finetune
from bertkit.model import ModernBertConfig, build_encoder
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.schemes import to_iob2
from data_pipelines.labels.tagged import read_tagged
from data_pipelines.text.lines import Line

torch.set_num_threads(1)


READING = Reading(TaggedConfig(), LABELS)


def run_tag(capsys, *arguments) -> str:
    assert main(["tag", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_files_are_tagged_in_order_whatever_they_hold(trained_tagger, tmp_path, capsys):
    text, conll, jsonl = tmp_path / "a.txt", tmp_path / "b.conll", tmp_path / "c.jsonl"
    text.write_text("anna paints.\n\nboris!\n")
    conll.write_text("clara\tO\npaints\tO\n\ndavid\tO\n")
    jsonl.write_text('{"tokens": ["emil", ""]}\n{"text": "frieda watches"}\n')
    lines = run_tag(capsys, "--model", trained_tagger, text, conll, jsonl).splitlines()
    assert [line.partition("\t")[0] for line in lines] == [
        *("anna", "paints", ".", "", "boris", "!", "", "clara", "paints", "", "david", ""),
        *("emil", "", "", "frieda", "watches", ""),
    ]
    assert lines[0] == "anna\tB-PER"


def test_json_lines_hold_words_tags_spans_offsets_and_confidence(trained_tagger, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"anna watches the river\n")))
    (line,) = run_tag(capsys, "--model", trained_tagger, "--output", "jsonl").splitlines()
    record = json.loads(line)
    assert record["words"] == ["anna", "watches", "the", "river"]
    assert record["offsets"][0] == [0, 4]
    assert record["spans"][0] | {"confidence": 1} == {
        "label": "PER",
        "words": [0, 1],
        "text": "anna",
        "confidence": 1,
        "start": 0,
        "end": 4,
    }


@pytest.mark.parametrize("output", ["jsonl", "spans"])
def test_a_span_that_was_there_keeps_its_id(trained_tagger, tmp_path, capsys, output):
    span = {"id": 7, "start": 0, "end": 4, "label": "X"}
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "anna paints", "spans": [span, {"start": [0]}]}) + "\n")
    found = json.loads(run_tag(capsys, "--model", trained_tagger, "--output", output, tmp_path / "a.jsonl"))
    (kept,) = found["spans"]
    assert {key: kept[key] for key in span} == {**span, "label": "PER"}
    assert 0 < kept["confidence"] <= 1


def test_a_file_comes_back_with_nothing_but_its_tags_changed(trained_tagger, tmp_path, capsys):
    """Columns whatever the suffix, CoNLL-U, JSON: line n of the input is line n of the output."""
    columns = "\n\n# id = 1\nanna  NN O\npaints VB  O\n\n\n-DOCSTART- -X- O\n\nboris NN O\n"
    tagged = columns.replace("anna  NN O", "anna  NN B-PER").replace("boris NN O", "boris NN B-PER") + "\n"
    for name in ("a.conll", "a.txt", "a"):
        (tmp_path / name).write_text(columns)
        assert run_tag(capsys, "--model", trained_tagger, tmp_path / name) == tagged
    rows = ["# sent_id = x", "1-2 annapaints" + " _" * 8, "1 anna A X _ _ 2 obj _ _", "2 paints B X _ _ 0 root _ _", ""]
    conllu = "\n".join(row if row[:1] == "#" else row.replace(" ", "\t") for row in rows) + "\n"
    (tmp_path / "b.conllu").write_text(conllu)
    out = run_tag(capsys, "--model", trained_tagger, tmp_path / "b.conllu")
    assert out == conllu.replace("obj\t_\t_", "obj\t_\tNER=B-PER")  # spans are no parts of speech
    records = [
        {"id": 7, "tokens": ["anna", "paints"], "ner_tags": ["O", "O"], "other": {"x": [1]}},
        {"id": 8, "text": "anna paints", "label": [[0, 1, "X"]]},
    ]
    (tmp_path / "c.jsonl").write_text("\n" + "\n\n".join(map(json.dumps, records)) + "\n")
    lines = run_tag(capsys, "--model", trained_tagger, tmp_path / "c.jsonl").split("\n")
    assert [bool(line) for line in lines] == [False, True, False, True, False]
    first, second = json.loads(lines[1]), json.loads(lines[3])
    assert first["other"] == {"x": [1]}
    assert first["ner_tags"] == ["B-PER", "O"] == first["tags"]
    assert (second["id"], second["label"], second["words"]) == (8, [[0, 4, "PER"]], ["anna", "paints"])
    (tmp_path / "c.json").write_text(json.dumps(records))
    assert run_tag(capsys, "--model", trained_tagger, tmp_path / "c.json").split("\n") == [lines[1], lines[3], ""]
    (tmp_path / "d.txt").write_text("\nanna\n\n")
    lines = run_tag(capsys, "--model", trained_tagger, "--output", "jsonl", tmp_path / "d.txt").splitlines()
    assert [json.loads(line)["words"] for line in lines] == [[], ["anna"], []]


def test_lines_end_as_those_of_the_input_do(trained_tagger, tmp_path, capfdbinary, monkeypatch):
    """Also where a program asks, and where brat counts characters: \\r is one of them."""
    windows = b"anna O\r\n\r\nboris O\r\n\r\n"
    (tmp_path / "a.conll").write_bytes(windows)
    (tmp_path / "b.conll").write_bytes(windows.replace(b"\r", b""))
    tagged = b"anna B-PER\r\n\r\nboris B-PER\r\n\r\n"
    both = [tmp_path / "a.conll", tmp_path / "b.conll"]
    assert run_tag(capfdbinary, "--model", trained_tagger, both[0]) == tagged
    assert run_tag(capfdbinary, "--model", trained_tagger, *both) == 2 * tagged.replace(b"\r", b"")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(windows)))
    assert run_tag(capfdbinary, "--model", trained_tagger, "--input", "conll") == tagged
    (tmp_path / "c.txt").write_bytes(b"old house\r\n\r\nanna paints\r\n")
    out = run_tag(capfdbinary, "--model", trained_tagger, "--output", "brat", tmp_path / "c.txt")
    assert out == b"T1\tPER 13 17\tanna\r\n"
    (tmp_path / "c.ann").write_bytes(out)
    (found,) = (each for each in read_tagged(str(tmp_path / "c.ann"), TaggedConfig()) if "anna" in each.words)
    assert (found.words, found.tags) == (["anna", "paints"], ["B-PER", "O"])


def test_files_are_read_as_the_training_files_were(tmp_path, grammar_tokenizer, capsys):
    """The export remembers which column holds what."""
    config = ModernBertConfig(vocab_size=grammar_tokenizer.vocab_size, max_position_embeddings=64, **TAGGER_SIZES)
    bertkit.save(build_encoder(config, 0), tmp_path / "encoder", grammar_tokenizer)
    rows = "1\tanna\tB-PER\tx\n2\tpaints\tO\ty\n\n"
    (tmp_path / "train.txt").write_text(rows * 20)
    data = [f"data.train={tmp_path / 'train.txt'}", "data.word_column=2", "data.tag_column=3", "train.epochs=3"]
    places = [f"model.init={tmp_path / 'encoder'}", f"run.dir={tmp_path / 'run'}", "optim.lr=0.01"]
    assert finetune(read_finetune_recipe("ner", [*data, *places])) == 0
    capsys.readouterr()
    (tmp_path / "new.txt").write_text(rows.replace("B-PER", "O"))
    assert run_tag(capsys, "--model", tmp_path / "run", tmp_path / "new.txt") == rows


def test_columns_named_for_one_format_do_not_touch_the_words_of_another():
    """Trained on columns whose second holds the tags, or on CoNLL-U: the second column of CoNLL-U holds the words."""
    columns = Reading(TaggedConfig(tag_column="2", encoding="latin-1"), LABELS, [".conll"])
    assert columns.of("tsv").config.tag_column == columns.of("text").config.tag_column == "2"
    assert columns.of("jsonl").config == TaggedConfig(encoding="latin-1")
    assert columns.of("conllu").config == TaggedConfig(encoding="latin-1", tag_column="misc:NER")
    assert Reading(TaggedConfig(), ["NOUN", "O"], [".conll"]).of("conllu").config.tag_column == "upos"
    assert Reading(TaggedConfig(), LABELS, [".conllu"]).of("conllu").config.tag_column == ""
    treebank = Reading(TaggedConfig(tag_column="upos"), LABELS, [".conllu"])
    assert [treebank.of(kind).config.tag_column for kind in ("conllu", "conll", "jsonl")] == ["upos", "", ""]
    records = Reading(TaggedConfig(word_column="body"), LABELS, [".jsonl"])
    assert records.of("doccano") == records.of("csv") == records
    assert Reading(TaggedConfig(tag_column="2"), LABELS).of("conllu").config.tag_column == "2"


@pytest.mark.parametrize("output", ["spans", "doccano", "label-studio", "brat", "conllu"])
def test_every_output_can_be_learnt_from(trained_tagger, tmp_path, capsys, output):
    text = "anna watches the old house near the station.\n\nBoris, and anna!\n"
    (tmp_path / "x.txt").write_text(text)
    out = run_tag(capsys, "--model", trained_tagger, "--output", output, tmp_path / "x.txt")
    file = tmp_path / {"brat": "x.ann", "conllu": "x.conllu", "label-studio": "x.json"}.get(output, "x.jsonl")
    file.write_text(out)
    found = read_tagged(str(file), TaggedConfig(tag_column="misc:NER" if output == "conllu" else ""))
    found = [each for each in found if each.words]
    again = list(bertkit.Tagger.load(trained_tagger).tag_all(each.words for each in found))
    assert [each.words for each in found] == [each.words for each in again]
    assert "".join("".join(each.words) for each in found) == "".join(text.split())
    assert [to_iob2(each.tags) for each in found] == [each.tags for each in again]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--output", "brat", "b.conll"], "--output brat … .txt"),
        (["--output", "spacy", "a.txt"], "bertkit[spacy]"),
        (["--input", "label-studio", "a.txt"], "a.txt:1: not JSON"),
    ],
)
def test_what_cannot_be_written_or_read_is_told(trained_tagger, tmp_path, capsys, monkeypatch, words, complaint):
    monkeypatch.setitem(sys.modules, "spacy", None)
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("anna\n")
    Path("b.conll").write_text("anna\tO\n")
    assert main(["tag", "--model", str(trained_tagger), *words]) == 2
    assert tells(capsys.readouterr().err, complaint)


def test_the_view_shows_spans_and_hides_no_control_code(trained_tagger, tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_text("anna watches\x1b[31m the river\n")
    shown = run_tag(capsys, "--model", trained_tagger, "--output", "view", path)
    assert "anna PER" in shown
    assert "\x1b[31m" not in shown


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.txt", b"ok\n\xff\n", "a.txt:2: not UTF-8"),
        ("b.conll", b"a b\nc\n", "b.conll:2: 1 column … 2"),
        ("c.jsonl", b'{"tokens": 3}\n', "c.jsonl:1: … tokens … text"),
        ("d.json", b'{"tokens": 3}\n', "d.json:1: … tokens … text"),
        ("e.ndjson.gz", gzip.compress(b'{"tokens": 3}\n', mtime=0), "e.ndjson.gz:1: expected tokens"),
    ],
)
def test_a_bad_input_is_one_line_and_exit_two(trained_tagger, tmp_path, capsys, name, content, complaint):
    (tmp_path / name).write_bytes(content)
    assert main(["tag", "--model", str(trained_tagger), str(tmp_path / name)]) == 2
    assert tells(capsys.readouterr().err, complaint)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", ""])
def test_a_device_that_is_not_there_is_named(random_tagger, tmp_path, capsys, device):
    (tmp_path / "a.txt").write_text("anna\n")
    words = ["--model", str(random_tagger), "--backend", "torch", "--device", device]
    assert main(["tag", *words, str(tmp_path / "a.txt")]) == 2
    assert f"device {device!r}" in capsys.readouterr().err


def test_a_program_that_waits_for_each_answer_gets_it(random_tagger):
    """A pipe that stays open: an answer that waited for a full chunk, or in a buffer, would never come."""
    command = [sys.executable, "-m", "bertkit", "tag", "--model", str(random_tagger), "--output", "jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for text in ("anna", "boris paints", "clara paints the house"):
            process.stdin.write(text.encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["text"] == text
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("read", "kind", "text", "given"),
    [
        (word_inputs, "text", "a b\n\nc\n", ["a b", "", "c"]),
        (word_inputs, "conll", "a\tO\nb\tO\n\nc\tO\n", [["a", "b"], ["c"]]),
        (word_inputs, "jsonl", '{"tokens": ["a", "b"]}\n{"text": "c d"}\n', [["a", "b"], "c d"]),
        (text_inputs, "text", "a b\n", ["a b"]),
        (word_inputs, "jsonl", '{"sentence": ["a", "b"]}\n{"form": ["c"]}\n', [["a", "b"], ["c"]]),
        (word_inputs, "jsonl", '{"words": 2, "text": "a b"}\n{"tokens": null, "text": "c"}\n', ["a b", "c"]),
        (text_inputs, "jsonl", '{"text": "c d", "label": "x"}\n', ["c d"]),
        (text_inputs, "jsonl", '{"tokens": ["c"], "content": "c d"}\n', ["c d"]),
        (text_inputs, "csv", "sentence,label\nc d,x\n", ["c d"]),
        (text_inputs, "csv", "text,label\nc d,x\n", ["c d"]),
    ],
)
def test_what_a_format_holds_is_given_to_the_tagger(read, kind, text, given):
    lines = [Line(line, number, True) for number, line in enumerate(text.splitlines(), start=1)]
    assert [part.given for part in read(lines, "x", kind, READING)] == given


def test_words_keep_their_places_in_the_text_of_their_record(trained_tagger, tmp_path, capsys):
    """Given by their places, as Prodigy does, or as a list beside the text: the text is not split or spaced anew."""
    places = [{"start": 0, "end": 4}, {"start": 4, "end": 11}]
    record = {"text": "anna-paints", "tokens": places, "spans": [], "id": 7}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    (tmp_path / "b.jsonl").write_text(json.dumps({**record, "tokens": ["anna", "-paints"]}))
    found = json.loads(run_tag(capsys, "--model", trained_tagger, tmp_path / "a.jsonl"))
    assert (found["words"], found["offsets"], found["tokens"]) == (["anna", "-paints"], [[0, 4], [4, 11]], places)
    assert {(span["start"], span["end"]) for span in found["spans"]} <= {(0, 4), (4, 11), (0, 11)}
    for name in ("a.jsonl", "b.jsonl"):
        found = json.loads(run_tag(capsys, "--model", trained_tagger, "--output", "spans", tmp_path / name))
        assert (found["text"], found["tokens"], found["id"]) == ("anna-paints", places, 7)


@pytest.mark.parametrize(
    ("answer", "column", "written"),
    [
        ({"labels": ["a", "b"], "confidences": {"a": 0.9, "b": 0.8}}, "classes", "a;b"),
        ({"score": 1.5}, "rating", "1.5"),
        ({"label": "no", "confidence": 0.9}, "gold", "no"),
    ],
)
def test_numbers_sets_of_labels_and_pairs_fill_their_own_column_too(capsys, answer, column, written):
    """In tables and in JSON; raw text becomes a table under the usual names."""
    reading = Reading(TaggedConfig(tag_column=column, label_separator=";"), ())
    record = {"id": "7", "text": "x", column: "old"}
    result = LabeledText(["x"], answer)
    for given in (record, None):
        labeled_text.OUTPUTS["csv"]([Answer(Part(None), None), Answer(Part("x", record=given), result)], reading)
        (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
        assert row == ({**record, column: written} if given else {"text": "x", next(iter(answer)): written})
    labeled_text.OUTPUTS["jsonl"]([Answer(Part("x", record=record), result)], reading)
    assert str(json.loads(capsys.readouterr().out)[column]) == written


def test_a_line_that_is_no_pair_is_named():
    lines = [Line("a\tb", 1, True), Line("", 2, True), Line("c", 3, True)]
    with pytest.raises(ValueError, match="x:3: "):
        list(labeled_text.pair_inputs(lines, "x", "text", READING))


def test_tasks_of_label_studio_come_back_as_tasks(trained_tagger, tmp_path, capsys):
    """Whatever the suffix: as JSON Lines, old annotations would be read again in place of the tags."""
    tasks = [{"id": 7, "data": {"text": "anna paints"}, "annotations": [{"result": []}]}, {"data": {"text": "x"}}]
    (tmp_path / "a.json").write_text(json.dumps(tasks, indent=1))
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    for name in ("a.json", "b.jsonl"):
        first, _ = json.loads(run_tag(capsys, "--model", trained_tagger, tmp_path / name))
        (mark,) = first["predictions"][0]["result"]
        assert (first["id"], first["annotations"], mark["value"]["text"]) == (7, [{"result": []}], "anna")


def test_columns_of_words_are_no_texts():
    with pytest.raises(ValueError, match=r"x\.conll.*conll holds words"):
        text_inputs([], "x.conll", kind_of("x.conll.gz", READING), READING)


def test_a_table_of_texts_keeps_its_other_columns(capsys):
    """The label goes where it is read from, by the setting or by its usual names, else into a new column."""
    text = 'so "bad", really'
    result = Tagging([text], ["-"], [0.9], text, [(0, len(text))])
    table = {"id": "7", "text": text, "class": "+", "category": "film"}
    for record, setting, changed in [
        (table, "", {"class": "-"}),
        (table, "category", {"category": "-"}),
        ({"id": "7", "text": text}, "", {"label": "-"}),
        (None, "", {"label": "-"}),
    ]:
        reading = Reading(TaggedConfig(tag_column=setting), ("+", "-"))
        parts = [Part(None), Part(text, record=record)]
        TEXT_OUTPUTS["csv"]([Answer(parts[0], None), Answer(parts[1], result)], reading)
        assert list(csv.DictReader(capsys.readouterr().out.splitlines())) == [{**(record or {"text": text}), **changed}]
    others = [Answer(Part("", record=one), result) for one in (table, {"text": text})]
    with pytest.raises(ValueError, match="columns"):
        TEXT_OUTPUTS["tsv"](others, reading)

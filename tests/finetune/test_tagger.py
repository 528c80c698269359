"""One tag for each word, whatever the word; the same tags alone, in a crowd, in windows and in transformers."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from grammar import documents, write_conll, write_corpus
from telling import tells

import bertkit
from bertkit.cli import main
from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.predict.inputs import Reading, kind_of, text_inputs, word_inputs
from bertkit.finetune.predict.settings import SETTINGS
from bertkit.finetune.train import finetune
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, SequenceClassifier, TokenTagger, build_encoder
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.schemes import to_iob2
from data_pipelines.labels.tagged import read_tagged
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.lines import Line
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

torch.set_num_threads(1)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
READING = Reading(TaggedConfig(), LABELS)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "text.txt"))])
    return train_tokenizer(corpus, TokenizerConfig(vocab_size=150), folder)


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def folder(request, tokenizer, tmp_path_factory) -> Path:
    """A tagger with random weights, the head's large enough that no two labels tie."""
    config = {"bert": BertConfig, "modernbert": ModernBertConfig}[request.param]
    encoder = build_encoder(config(vocab_size=tokenizer.vocab_size, max_position_embeddings=64, **SIZES), 0)
    model = TokenTagger(encoder, LABELS, 0)
    with torch.no_grad():
        model.head.classifier.weight.mul_(50)
    path = tmp_path_factory.mktemp(request.param)
    bertkit.save(model, path, tokenizer)
    return path


@pytest.fixture(scope="module")
def trained(tokenizer, tmp_path_factory) -> Path:
    """A run that has learnt the grammar."""
    home = tmp_path_factory.mktemp("trained")
    config = ModernBertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=64, **SIZES)
    bertkit.save(build_encoder(config, 0), home / "encoder", tokenizer)
    data = [f"data.train={write_conll(home / 'train.conll', 60)}", f"data.dev={write_conll(home / 'dev.conll', 20, 1)}"]
    small = ["train.epochs=6", "train.global_batch=8", "optim.lr=0.01", f"run.dir={home / 'run'}"]
    assert finetune(read_finetune_recipe("ner", [*data, f"model.init={home / 'encoder'}", *small])) == 0
    return home / "run"


def test_a_trained_tagger_finds_spans_in_raw_text_with_their_places(trained):
    text = "  anna watches the old house\tnear the station."
    found = bertkit.Tagger.load(trained).tag(text)
    assert found.words == ["anna", "watches", "the", "old", "house", "near", "the", "station", "."]
    assert [text[a:b] for a, b in found.offsets] == found.words
    kinds = [(span.kind, span.text, text[slice(*span.offsets)]) for span in found.spans]
    assert kinds == [("PER", "anna", "anna"), ("LOC", "near the station", "near the station")]
    assert all(0.2 < confidence <= 1 for confidence in found.confidences)


def test_words_and_text_get_the_same_tags(trained):
    tagger = bertkit.Tagger.load(trained)
    assert tagger.tag("anna watches the house.").tags == tagger.tag(["anna", "watches", "the", "house", "."]).tags


@pytest.mark.parametrize(
    "words",
    [
        [""],
        ["", "", ""],
        ["\u200b", "anna", "\u200d", "\ufeff"],
        ["שלום", "עולם", "\u202eabc"],
        ["👨‍👩‍👧", "👍🏽", "🇩🇪"],
        ["[SEP]", "[CLS]", "[MASK]", "[PAD]"],
        ["x" * 5000],
        ["anna", "x" * 5000, "paints"],
        ["a b", "c\td", "e\nf"],
        [],
    ],
)
def test_every_word_gets_one_tag(folder, words):
    found = bertkit.Tagger.load(folder).tag(words)
    assert found.words == words
    assert len(found.tags) == len(found.confidences) == len(words)
    assert set(found.tags) <= set(LABELS)


@pytest.mark.parametrize("text", ["", "   ", "\u200b", "a\u200bb", "שלום, עולם!", "👍🏽👍🏽 ok"])
def test_every_text_is_tagged_word_by_word(folder, text):
    found = bertkit.Tagger.load(folder).tag(text)
    assert "".join(found.words) == "".join(text.split())
    assert len(found.tags) == len(found.words)


def test_ten_thousand_words_get_ten_thousand_tags(folder):
    """Row 16: a sentence far longer than the model is tagged to its end."""
    words = (" ".join(documents(400)).split() * 3)[:10_000]
    found = bertkit.Tagger.load(folder).tag(words)
    assert len(found.tags) == 10_000
    assert len(set(found.tags)) > 1


def test_company_does_not_change_a_tag(folder):
    tagger = bertkit.Tagger.load(folder)
    texts = [*documents(20), "", "anna", *documents(5, seed=3)]
    together = list(tagger.tag_all(texts))
    assert [found.text for found in together] == texts
    for chunk in (1, 7):
        alone = list(tagger.tag_all(texts, chunk=chunk))
        assert [found.tags for found in alone] == [found.tags for found in together]


def test_tagging_is_lazy(folder):
    read = []
    taggings = bertkit.Tagger.load(folder).tag_all((read.append(i) or "anna" for i in range(100)), chunk=10)
    next(taggings)
    assert len(read) == 10


def test_transformers_gives_the_same_scores_and_its_pipeline_the_same_tags(folder, tokenizer):
    transformers = pytest.importorskip("transformers", minversion="5.0")
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    assert model.config.id2label == dict(enumerate(LABELS))
    ids = torch.tensor([tokenizer.backend.encode("anna paints the old house").ids])
    torch.testing.assert_close(bertkit.load(folder)(ids), model(ids).logits, rtol=1e-4, atol=1e-4)
    pipeline = transformers.pipeline("token-classification", model=str(folder), ignore_labels=[])
    for text in documents(10, seed=9):
        if len(text) > 150:
            continue  # the pipeline does not cut what is too long for the model
        found = bertkit.Tagger.load(folder).tag(text)
        theirs = {piece["start"]: piece["entity"] for piece in reversed(pipeline(text))}
        assert found.tags == [theirs[start] for start, _ in found.offsets]


def test_the_folder_remembers_how_words_were_split(trained, tmp_path):
    settings = json.loads((trained / "export" / SETTINGS).read_bytes())
    assert settings["split"]["punctuation"] is True
    assert bertkit.Tagger.load(trained).tag("anna.").words == ["anna", "."]
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (trained / "export").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    settings["split"]["punctuation"] = False
    (copy / SETTINGS).write_text(json.dumps(settings))
    assert bertkit.Tagger.load(copy).tag("anna.").words == ["anna."]
    (copy / SETTINGS).write_text('{"split": 3}')
    with pytest.raises(ValueError, match=SETTINGS):
        bertkit.Tagger.load(copy)


def test_a_model_without_labels_is_refused(tokenizer, tmp_path):
    config = BertConfig(vocab_size=tokenizer.vocab_size, **SIZES)
    bertkit.save(MaskedLM(build_encoder(config)), tmp_path, tokenizer)
    with pytest.raises(ValueError, match="MaskedLM, but a TokenTagger or a SequenceClassifier is needed"):
        bertkit.Tagger.load(tmp_path)


@pytest.mark.parametrize("config", [BertConfig, ModernBertConfig])
def test_transformers_opens_a_text_classifier(tokenizer, tmp_path, config):
    transformers = pytest.importorskip("transformers", minversion="5.0")
    encoder = build_encoder(config(vocab_size=tokenizer.vocab_size, max_position_embeddings=64, **SIZES), 0)
    model = SequenceClassifier(encoder, ["good", "bad"], 0).eval()
    bertkit.save(model, tmp_path, tokenizer)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert theirs.config.id2label == {0: "good", 1: "bad"}
    ids, mask = torch.randint(5, 100, (3, 9)), torch.ones(3, 9, dtype=torch.long)
    mask[1, 4:] = 0
    torch.testing.assert_close(model(ids, mask), theirs(ids, mask).logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(bertkit.load(tmp_path)(ids, mask), model(ids, mask))
    with pytest.raises(ValueError, match="give it a text, not words"):
        bertkit.Tagger.load(tmp_path).tag(["two", "words"])


def run_tag(capsys, *arguments) -> str:
    assert main(["tag", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_files_are_tagged_in_order_whatever_they_hold(trained, tmp_path, capsys):
    text, conll, jsonl = tmp_path / "a.txt", tmp_path / "b.conll", tmp_path / "c.jsonl"
    text.write_text("anna paints.\n\nboris!\n")
    conll.write_text("clara\tO\npaints\tO\n\ndavid\tO\n")
    jsonl.write_text('{"tokens": ["emil", ""]}\n{"text": "frieda watches"}\n')
    lines = run_tag(capsys, "--model", trained, text, conll, jsonl).splitlines()
    assert [line.partition("\t")[0] for line in lines] == [
        *("anna", "paints", ".", "", "boris", "!", "", "clara", "paints", "", "david", ""),
        *("emil", "", "", "frieda", "watches", ""),
    ]
    assert lines[0] == "anna\tB-PER"


def test_json_lines_hold_words_tags_spans_offsets_and_confidence(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"anna watches the river\n")))
    (line,) = run_tag(capsys, "--model", trained, "--output", "jsonl").splitlines()
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


def test_a_file_comes_back_with_nothing_but_its_tags_changed(trained, tmp_path, capsys):
    """Columns whatever the suffix, CoNLL-U, JSON: line n of the input is line n of the output."""
    columns = "\n\n# id = 1\nanna  NN O\npaints VB  O\n\n\n-DOCSTART- -X- O\n\nboris NN O\n"
    tagged = columns.replace("anna  NN O", "anna  NN B-PER").replace("boris NN O", "boris NN B-PER") + "\n"
    for name in ("a.conll", "a.txt", "a"):
        (tmp_path / name).write_text(columns)
        assert run_tag(capsys, "--model", trained, tmp_path / name) == tagged
    rows = ["# sent_id = x", "1-2 annapaints" + " _" * 8, "1 anna A X _ _ 2 obj _ _", "2 paints B X _ _ 0 root _ _", ""]
    conllu = "\n".join(row if row[:1] == "#" else row.replace(" ", "\t") for row in rows) + "\n"
    (tmp_path / "b.conllu").write_text(conllu)
    out = run_tag(capsys, "--model", trained, tmp_path / "b.conllu")
    assert out == conllu.replace("A\tX", "A\tB-PER").replace("B\tX", "B\tO")
    records = [
        {"id": 7, "tokens": ["anna", "paints"], "ner_tags": ["O", "O"], "other": {"x": [1]}},
        {"id": 8, "text": "anna paints", "label": [[0, 1, "X"]]},
    ]
    (tmp_path / "c.jsonl").write_text("\n" + "\n\n".join(map(json.dumps, records)) + "\n")
    lines = run_tag(capsys, "--model", trained, tmp_path / "c.jsonl").split("\n")
    assert [bool(line) for line in lines] == [False, True, False, True, False]
    first, second = json.loads(lines[1]), json.loads(lines[3])
    assert first["other"] == {"x": [1]}
    assert first["ner_tags"] == ["B-PER", "O"] == first["tags"]
    assert (second["id"], second["label"], second["words"]) == (8, [[0, 4, "PER"]], ["anna", "paints"])
    (tmp_path / "c.json").write_text(json.dumps(records))
    assert run_tag(capsys, "--model", trained, tmp_path / "c.json").split("\n") == [lines[1], lines[3], ""]
    (tmp_path / "d.txt").write_text("\nanna\n\n")
    lines = run_tag(capsys, "--model", trained, "--output", "jsonl", tmp_path / "d.txt").splitlines()
    assert [json.loads(line)["words"] for line in lines] == [[], ["anna"], []]


def test_lines_end_as_those_of_the_input_do(trained, tmp_path, capfdbinary, monkeypatch):
    """Also where a program asks, and where brat counts characters: \\r is one of them."""
    windows = b"anna O\r\n\r\nboris O\r\n\r\n"
    (tmp_path / "a.conll").write_bytes(windows)
    (tmp_path / "b.conll").write_bytes(windows.replace(b"\r", b""))
    tagged = b"anna B-PER\r\n\r\nboris B-PER\r\n\r\n"
    both = [tmp_path / "a.conll", tmp_path / "b.conll"]
    assert run_tag(capfdbinary, "--model", trained, both[0]) == tagged
    assert run_tag(capfdbinary, "--model", trained, *both) == 2 * tagged.replace(b"\r", b"")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(windows)))
    assert run_tag(capfdbinary, "--model", trained, "--input", "conll") == tagged
    (tmp_path / "c.txt").write_bytes(b"old house\r\n\r\nanna paints\r\n")
    out = run_tag(capfdbinary, "--model", trained, "--output", "brat", tmp_path / "c.txt")
    assert out == b"T1\tPER 13 17\tanna\r\n"
    (tmp_path / "c.ann").write_bytes(out)
    (found,) = (each for each in read_tagged(str(tmp_path / "c.ann"), TaggedConfig()) if "anna" in each.words)
    assert (found.words, found.tags) == (["anna", "paints"], ["B-PER", "O"])


def test_files_are_read_as_the_training_files_were(tmp_path, tokenizer, capsys):
    """The export remembers which column holds what."""
    config = ModernBertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=64, **SIZES)
    bertkit.save(build_encoder(config, 0), tmp_path / "encoder", tokenizer)
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
    assert columns.of("conllu").config == TaggedConfig(encoding="latin-1") == columns.of("jsonl").config
    treebank = Reading(TaggedConfig(tag_column="upos"), LABELS, [".conllu"])
    assert [treebank.of(kind).config.tag_column for kind in ("conllu", "conll", "jsonl")] == ["upos", "", ""]
    records = Reading(TaggedConfig(word_column="body"), LABELS, [".jsonl"])
    assert records.of("doccano") == records.of("csv") == records
    assert Reading(TaggedConfig(tag_column="2"), LABELS).of("conllu").config.tag_column == "2"


@pytest.mark.parametrize("output", ["spans", "doccano", "label-studio", "brat", "conllu"])
def test_every_output_can_be_learnt_from(trained, tmp_path, capsys, output):
    text = "anna watches the old house near the station.\n\nBoris, and anna!\n"
    (tmp_path / "x.txt").write_text(text)
    out = run_tag(capsys, "--model", trained, "--output", output, tmp_path / "x.txt")
    file = tmp_path / {"brat": "x.ann", "conllu": "x.conllu", "label-studio": "x.json"}.get(output, "x.jsonl")
    file.write_text(out)
    found = read_tagged(str(file), TaggedConfig(tag_column="misc:NER" if output == "conllu" else ""))
    found = [each for each in found if each.words]
    again = list(bertkit.Tagger.load(trained).tag_all(each.words for each in found))
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
def test_what_cannot_be_written_or_read_is_told(trained, tmp_path, capsys, monkeypatch, words, complaint):
    monkeypatch.setitem(sys.modules, "spacy", None)
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("anna\n")
    Path("b.conll").write_text("anna\tO\n")
    assert main(["tag", "--model", str(trained), *words]) == 2
    assert tells(capsys.readouterr().err, complaint)


def test_the_view_shows_spans_and_hides_no_control_code(trained, tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_text("anna watches\x1b[31m the river\n")
    shown = run_tag(capsys, "--model", trained, "--output", "view", path)
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
def test_a_bad_input_is_one_line_and_exit_two(trained, tmp_path, capsys, name, content, complaint):
    (tmp_path / name).write_bytes(content)
    assert main(["tag", "--model", str(trained), str(tmp_path / name)]) == 2
    assert tells(capsys.readouterr().err, complaint)


def test_a_program_that_waits_for_each_answer_gets_it(folder):
    """A pipe that stays open: an answer that waited for a full chunk, or in a buffer, would never come."""
    command = [sys.executable, "-m", "bertkit", "tag", "--model", str(folder), "--output", "jsonl"]
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
        (text_inputs, "jsonl", '{"text": "c d", "label": "x"}\n', ["c d"]),
        (text_inputs, "csv", "text,label\nc d,x\n", ["c d"]),
    ],
)
def test_what_a_format_holds_is_given_to_the_tagger(read, kind, text, given):
    lines = [Line(line, number, True) for number, line in enumerate(text.splitlines(), start=1)]
    assert [part.given for part in read(lines, "x", kind, READING)] == given


def test_columns_of_words_are_no_texts():
    with pytest.raises(ValueError, match=r"x\.conll.*conll holds words"):
        text_inputs([], "x.conll", kind_of("x.conll.gz", READING), READING)

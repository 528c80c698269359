"""Sentences see their neighbours in the same document: what marks one, what it brings, and that nothing else does."""

import itertools
import json
import random

import pytest
from grammar import NOUNS
from runs import start

import bertkit
from bertkit.cli import main
from bertkit.config.finetune import LabeledSection
from bertkit.finetune.predict.inputs import Reading, word_inputs
from bertkit.finetune.tasks.tagging import TAGGING
from bertkit.finetune.windows import LONGEST_DOCUMENT
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.tagged import read_tagged
from data_pipelines.text.lines import Line

SMALL = [
    *("train.epochs=12", "train.global_batch=12", "train.micro_batch=12", "optim.lr=0.005", "optim.layer_decay=1"),
    *("data.max_length=32", "data.scheme=plain", "data.context=auto", "model.like=demo", "run.log_every=50"),
]


def write_secret(path, count, seed):
    """Documents of a colour and then three sentences, whose last word has the colour as its tag: it cannot be told from
    the sentence."""
    rng = random.Random(seed)
    blocks = []
    for _ in range(count):
        colour = rng.choice(["red", "blue"])
        blocks.append(f"-DOCSTART-\tO\n\n{colour}\tO\n")
        blocks += [f"the\tO\n{rng.choice(NOUNS)}\t{colour.upper()}\n" for _ in range(3)]
    path.write_text("\n".join(blocks))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("context")
    write_secret(folder / "train.conll", 60, seed=0)
    write_secret(folder / "dev.conll", 20, seed=1)
    assert main(["finetune", "ner", *arguments(folder), f"run.dir={folder / 'run'}"]) == 0
    return folder


def arguments(folder):
    return [f"data.train={folder / 'train.conll'}", f"data.dev={folder / 'dev.conll'}", *SMALL]


def dev_scores(run):
    return json.loads((run / "scores.json").read_bytes())["seeds"][0]["dev"]


def test_what_only_the_document_tells_is_learnt_with_context_and_only_so(home, tmp_path):
    assert dev_scores(home / "run")["accuracy"] > 0.95
    alone = tmp_path / "alone"
    assert main(["finetune", "ner", *arguments(home), "data.context=sentence", f"run.dir={alone}"]) == 0
    assert dev_scores(alone)["accuracy"] < 0.85


def test_two_processes_give_the_same_scores(home, tmp_path):
    short = ["finetune", "ner", *arguments(home), "train.epochs=2"]
    run = start([*short, f"run.dir={tmp_path / 'two'}"], ranks=2, log=tmp_path / "log.txt")
    assert main([*short, f"run.dir={tmp_path / 'one'}"]) == 0
    assert run.wait() == [0, 0], run.said()
    found, same = dev_scores(tmp_path / "two"), dev_scores(tmp_path / "one")
    assert found["accuracy"] == pytest.approx(same["accuracy"], abs=0.05)
    assert found["words"] == same["words"]


def test_evaluate_and_the_other_runtime_see_the_same_neighbours(home, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    assert main(["export", str(home / "run"), str(tmp_path / "onnx"), "--format", "onnx"]) == 0
    capsys.readouterr()
    for folder in (home / "run", tmp_path / "onnx"):
        assert main(["evaluate", str(folder), str(home / "dev.conll"), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["accuracy"] == dev_scores(home / "run")["accuracy"]
        assert not any("neighbours" in note for note in found["notes"])


def test_files_of_every_kind_see_neighbours_and_standard_input_does_not(home, tmp_path, capsys):
    def tags_of(file, text):
        (tmp_path / file).write_text(text)
        assert main(["tag", "--model", str(home / "run"), "--output", "jsonl", str(tmp_path / file)]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [json.loads(line)["tags"][-1] for line in lines if json.loads(line)["tags"]]

    expected = ["O", "RED", "O", "BLUE"]
    assert tags_of("new.txt", "red\nthe house\n\nblue\nthe house\n") == expected
    assert (
        tags_of("new.conll", "red\tO\n\nthe\tO\nhouse\tO\n\n-DOCSTART-\tO\n\nblue\tO\n\nthe\tO\nhouse\tO\n") == expected
    )
    records = [("red", 1), ("the house", 1), ("blue", 2), ("the house", 2)]
    rows = [json.dumps({"tokens": text.split(), "doc_id": number}) for text, number in records]
    assert tags_of("new.jsonl", "\n".join(rows)) == expected


def test_no_tag_depends_on_what_is_computed_together(home):
    tagger, rng = bertkit.Tagger.load(home / "run"), random.Random(2)
    given = [([rng.choice(NOUNS) for _ in range(rng.randint(1, 6))], rng.random() < 0.8) for _ in range(60)]
    given += [(["the", "house"], True)] * (2 * LONGEST_DOCUMENT + 3)
    together = [found.confidences for found in tagger._results(given, 10_000)]
    for chunk in (1, 7, 100):
        assert [found.confidences for found in tagger._results(given, chunk)] == [
            pytest.approx(each, abs=1e-5) for each in together
        ]


def test_a_document_is_tagged_by_its_own_method_and_a_list_one_by_one(home):
    tagger = bertkit.Tagger.load(home / "run")
    for colour in ("red", "blue"):
        assert tagger.tag_document([colour, "the river", "the engine"])[2].tags[-1] == colour.upper()
    alone = [found.tags[-1] for found in tagger.tag_all(["red", "the river", "blue", "the river"])]
    assert alone[1] == alone[3] == tagger.tag("the river").tags[-1]


@pytest.mark.parametrize(
    ("name", "text", "starts"),
    [
        ("a.conll", "-DOCSTART- O\n\na O\n\nb O\n\n-DOCSTART- O\n\nc O\n", [0, 2]),
        ("a.conll", "a\tO\n\nb\tO\n\n\nc\tO\n\nd\tO\n", [0, 2]),
        ("a.conll", "# newdoc id = 1\na\tO\n\nb\tO\n\n# newdoc id = 2\nc\tO\n", [0, 2]),
        ("a.conllu", "# newdoc\n{0}\n# sent_id = 2\n{0}\n# newdoc\n{0}\n{0}", [0, 2]),
        ("a.jsonl", '{{"tokens":["a"],"tags":["O"]}}\n{{"tokens":["b"],"tags":["O"]}}\n', [0]),
        ("a.jsonl", '{{"text":"a","spans":[]}}\n{{"text":"b","spans":[]}}\n', [0, 1]),
    ],
)
def test_where_documents_begin(tmp_path, name, text, starts):
    row = "\t".join(["1", "a", *["_"] * 8]) + "\n"
    (tmp_path / name).write_text(text.format(row))
    found = list(read_tagged(str(tmp_path / name), TaggedConfig(tag_column="upos" if "u" in name else "")))
    assert [index for index, sentence in enumerate(found) if not sentence.follows] == starts


def test_a_blank_line_of_text_begins_a_document():
    lines = [Line(text, number, True) for number, text in enumerate(["a", "b", "", "c", "d"], start=1)]
    parts = word_inputs(lines, "", "text", Reading(TaggedConfig(), []))
    assert [part.follows for part in parts] == [False, True, False, False, True]


def test_context_is_chosen_where_documents_are_marked_and_sentences_have_neighbours(home, tmp_path):
    def context(path, **changes):
        section = LabeledSection(**{"train": [str(path)], "scheme": "plain", "context": "auto", **changes})
        return TAGGING.read(section).settings.get("context")

    assert context(home / "train.conll") == "document"
    assert context(home / "train.conll", train_share=0.1) is None
    assert context(home / "train.conll", context="sentence") is None
    (tmp_path / "one.conll").write_text("".join(f"{word}\tO\n\n" for word in NOUNS))
    assert context(tmp_path / "one.conll") is None
    assert context(tmp_path / "one.conll", context="document") == "document"


def test_a_share_of_sentences_joins_only_those_that_stood_side_by_side(home):
    whole = TAGGING.read(LabeledSection(train=[str(home / "train.conll")], scheme="plain")).train
    some = TAGGING.read(LabeledSection(train=[str(home / "train.conll")], scheme="plain", train_share=0.5)).train
    place = {sentence.lines[0]: index for index, sentence in enumerate(whole)}
    for before, sentence in itertools.pairwise(some):
        if sentence.follows:
            assert place[sentence.lines[0]] == place[before.lines[0]] + 1

"""The task `rewrite` end to end: made-up words and their plurals, learnt from scratch and written."""

import json
import random

import pytest
import torch

import bertkit
from bertkit.cli import main
from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.train import finetune
from bertkit.finetune.writing.explained import explain
from data_pipelines.labels.rewrites import split_source

torch.set_num_threads(1)
SHAPES = {
    "left-to-right": ("bert-bytes", "hidden_dropout_prob"),
    "parallel": ("modernbert-bytes", "mlp_dropout"),
    "between": ("modernbert-bytes", "mlp_dropout"),
}


def plural(word):
    return word + ("es" if word[-1] == "s" else "s")


def write_forms(path, count, seed):
    rng = random.Random(seed)
    words = ["".join(rng.choice("abs") for _ in range(rng.randint(2, 4))) for _ in range(count)]
    path.write_text("".join(f"{word}\t{word}\tN;SG\n{word}\t{plural(word)}\tN;PL\n" for word in words))
    return path


def changes(tmp_path, order, **others):
    values = {
        "data.train": write_forms(tmp_path / "train.tsv", 500, 0),
        "data.dev": write_forms(tmp_path / "dev.tsv", 25, 1),
        "data.order": "parallel" if order == "between" else order,
        "data.slots": "between" if order == "between" else "after",
        "model.like": tmp_path / "shape.yaml",
        "run.dir": tmp_path / "run",
        "train.epochs": 6,
        "train.global_batch": 40,
        "optim.lr": 0.005,
        "optim.muon_lr": 0.01,
        **others,
    }
    base, dropout = SHAPES[order]
    sizes = f"hidden_size: 64, num_hidden_layers: 2, intermediate_size: 128, {dropout}: 0"
    (tmp_path / "shape.yaml").write_text(f"base: {base}\nmodel: {{{sizes}}}\n")
    return [f"{key}={value}" for key, value in values.items()]


@pytest.mark.parametrize("order", ["left-to-right", "parallel", "between"])
def test_plurals_are_learnt_and_written(order, tmp_path, capsys):
    assert finetune(read_finetune_recipe("inflection", changes(tmp_path, order))) == 0
    found = json.loads((tmp_path / "run/scores.json").read_text())
    scores = found["seeds"][0]["dev"]
    assert found["dev"]["mean"] == scores["exact"] > 0.8
    assert found["dev"]["baselines"]["copy of the source"]["exact"] == 0.5
    assert scores["edit_distance"] < 0.5
    assert ("five_beams" if order == "left-to-right" else "one_pass") in scores
    writer = bertkit.Writer.load(tmp_path / "run")
    assert str(writer.write("bab", ["N", "SG"])) == "bab"
    sources = tmp_path / "sources.txt"
    sources.write_text("bab\tN;SG\n\nabb\tN;PL\n")
    capsys.readouterr()
    assert main(["write", "--model", str(tmp_path / "run"), str(sources)]) == 0
    assert capsys.readouterr().out.splitlines() == ["bab", "", "abbs"]
    assert main(["write", "--model", str(tmp_path / "run"), str(sources), "--output", "jsonl"]) == 0
    first, *_ = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["target"] == "bab"
    assert first["features"] == ["N", "SG"]
    assert first["score"] <= 0
    page = tmp_path / "page.html"
    assert main(["write", "--model", str(tmp_path / "run"), str(sources), "--page", str(page)]) == 0
    assert capsys.readouterr().out.splitlines() == ["bab", "", "abbs"]
    html = page.read_text()
    assert "abb → abbs" in html
    assert ("Passes 1 to 4" in html) == (order != "left-to-right")
    explained = explain(writer, "abb", ["N", "PL"])
    tokens, sure, kept = explained.passes[-1]
    # Of slots between tokens only those that hold something are shown.
    assert tokens == ([*"abbs"] if order == "between" else [*"abbs", "[SEP]"])
    assert explained.source == ["[CLS]", *"abb", "[SEP]", "<N>", "<PL>", "[SEP]"]
    assert explained.attention.shape == (len(tokens), 8)
    assert (explained.attention.sum(axis=1) <= 1.0001).all()
    assert all(kept)
    assert 0 < min(sure) <= max(sure) <= 1
    option = "--passes" if order == "left-to-right" else "--beams"
    assert main(["write", "--model", str(tmp_path / "run"), str(sources), option, "2"]) == 2
    assert ("left-to-right" if order == "left-to-right" else "parallel") in capsys.readouterr().err


def test_a_run_that_was_killed_resumes_to_the_same_weights(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    given = changes(tmp_path, "between", **{"train.epochs": 0.4, "run.save_every": 4, "data.corruption": 0.1})
    assert finetune(read_finetune_recipe("inflection", given)) == 0
    again = read_finetune_recipe("inflection", [*given, f"run.dir={tmp_path / 'again'}"])
    with monkeypatch.context() as patch:
        patch.setattr("bertkit.finetune.train.evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            finetune(again)
    assert (tmp_path / "again/seed-0/checkpoints/step-00000008").is_dir()
    assert finetune(again) == 0
    weights = [(tmp_path / run / "export/model.safetensors").read_bytes() for run in ("run", "again")]
    assert weights[0] == weights[1]


@pytest.fixture(scope="module")
def unlearned(tmp_path_factory):
    """A writer after a step, which knows the features N, SG and PL."""
    folder = tmp_path_factory.mktemp("unlearned")
    train = {"data.train": write_forms(folder / "few.tsv", 20, 0), "train.epochs": 1}
    assert finetune(read_finetune_recipe("inflection", changes(folder, "left-to-right", **train))) == 0
    return folder / "run"


def written(capsys, model, *arguments):
    capsys.readouterr()
    assert main(["write", "--model", str(model), *map(str, arguments)]) == 0
    return capsys.readouterr()


def test_line_n_of_the_records_is_line_n_of_what_is_written(unlearned, tmp_path, capsys):
    records = [
        {"lemma": "ab", "features": "N;PL", "form": "old", "id": 7},
        None,
        {"lemma": "ba", "features": ["N"]},
        None,
        None,
    ]
    path = tmp_path / "sources.jsonl"
    path.write_text("".join("\n" if record is None else json.dumps(record) + "\n" for record in records))
    lines = written(capsys, unlearned, path).out.split("\n")
    assert [bool(line) for line in lines] == [record is not None for record in [*records, None]]
    found = written(capsys, unlearned, path, "--output", "jsonl").out.split("\n")
    assert [bool(line) for line in found] == [bool(line) for line in lines]
    first = json.loads(found[0])
    assert (first["id"], first["form"], first["target"], first["features"]) == (7, lines[0], lines[0], ["N", "PL"])


@pytest.mark.parametrize("target", [True, False])
@pytest.mark.parametrize("header", [True, False])
def test_a_table_is_written_with_a_header_or_without(header, target, unlearned, tmp_path, capsys):
    rows = [["lemma", "form", "features"]] * header + [["ab", "abs", "N;PL"], [], ["ba", "ba", "N;SG"]]
    path = tmp_path / "forms.tsv"
    path.write_text("".join("\t".join(row if target else row[::2]) + "\n" for row in rows))
    lines = written(capsys, unlearned, path, "--output", "jsonl").out.split("\n")
    found = [json.loads(line) if line else None for line in lines]
    assert [one and (one["source"], one["features"]) for one in found] == [
        ("ab", ["N", "PL"]),
        None,
        ("ba", ["N", "SG"]),
        None,
    ]


def test_a_line_has_no_more_columns_than_the_model_reads(unlearned, tmp_path, capsys):
    path = tmp_path / "sources.txt"
    path.write_text("ab\tN;PL\nab\tabs\tN;PL\n")
    assert main(["write", "--model", str(unlearned), str(path)]) == 2
    assert "sources.txt:2: 3 columns" in capsys.readouterr().err
    assert split_source("ab", features=False) == ["ab"]
    with pytest.raises(ValueError, match="2 columns"):
        split_source("ab\tN", features=False)


def test_no_text_is_given_twice_however_its_tokens_differ(unlearned):
    """An unknown token is written as nothing where the source has no unknown character."""
    for source in ("ab", "ba", "x"):
        texts = [text for text, _ in bertkit.Writer.load(unlearned, best=60).write(source, ["N", "PL"]).best]
        assert len(texts) == len({*texts}) == 60


def test_features_that_the_model_does_not_know_are_named_once(unlearned, tmp_path, capsys, caplog):
    path = tmp_path / "sources.txt"
    path.write_text("ab\tN;DU\nba\tN;DU;\x1b[1m\nbb\tN;PL\n")
    written(capsys, unlearned, path)
    (record,) = caplog.records
    assert record.args == (r"'\x1b[1m', 'DU'",)

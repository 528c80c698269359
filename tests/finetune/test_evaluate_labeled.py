"""A finished model is scored on labeled files as fine-tuning scores it, beside baselines that it remembers."""

import json
from pathlib import Path

import pytest
import torch
from grammar import write_conll
from telling import tells

import bertkit
from bertkit.cli import main
from bertkit.finetune.predict.scoring import score_labeled
from bertkit.finetune.predict.settings import SETTINGS
from data_pipelines.labels.config import TaggedConfig

torch.set_num_threads(1)
SMALL = ["model.like=demo", "train.epochs=2", "train.global_batch=8"]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A tagger of spans, one of plain tags, and a classifier."""
    home = tmp_path_factory.mktemp("home")
    write_conll(home / "train.conll", 40)
    write_conll(home / "dev.conll", 20, 1)
    texts = [{"text": "a good day", "label": "+"}, {"text": "so bad", "label": "-"}, {"text": "good", "label": "+"}]
    (home / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts * 4))
    both = [f"data.train={home / 'train.conll'}", *(f"data.{part}={home / 'dev.conll'}" for part in ("dev", "test"))]
    assert main(["finetune", "ner", *both, *SMALL, f"run.dir={home / 'spans'}"]) == 0
    assert main(["finetune", "ner", *both, *SMALL, "data.scheme=plain", f"run.dir={home / 'plain'}"]) == 0
    texts = [f"data.{part}={home / 'texts.jsonl'}" for part in ("train", "dev", "test")]
    assert main(["finetune", "text-classification", *texts, *SMALL, f"run.dir={home / 'texts'}"]) == 0
    records = {
        "multi-label": {"text": "good", "labels": ["a", "b"]},
        "regression": {"text": "so bad", "score": 1.5},
        "pairs": {"text1": "good", "text2": "bad", "label": "no"},
    }
    for task, record in records.items():
        other = {**record, next(iter(record)): "a day"} | ({"score": 2.5} if "score" in record else {})
        (home / f"{task}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in [record, other] * 4))
        files = [f"data.{part}={home / f'{task}.jsonl'}" for part in ("train", "dev", "test")]
        recipe = ["text-classification", f"task={task}"]
        assert main(["finetune", *recipe, *files, *SMALL, f"run.dir={home / task}"]) == 0
    return home


def evaluated(capsys, *words: str | Path) -> dict:
    capsys.readouterr()
    assert main(["evaluate", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("run", "file"),
    [
        ("spans", "dev.conll"),
        ("plain", "dev.conll"),
        *((name, f"{name}.jsonl") for name in ("texts", "multi-label", "regression", "pairs")),
    ],
)
def test_the_scores_are_those_of_fine_tuning(home, run, file, capsys):
    found = evaluated(capsys, home / run, home / file)
    results = json.loads((home / run / "scores.json").read_bytes())
    test = results["seeds"][0]["test"]
    assert found["score"] == results["score"]
    for name in set(test) - {"each_word", "calibration"}:
        same = pytest.approx(test[name], rel=1e-4, abs=1e-5) if isinstance(test[name], float) else test[name]
        assert found[name] == same
    if "calibration" in test:  # the export is calibrated
        assert found["calibration"]["error"] == pytest.approx(test["calibration"]["error"], abs=1e-3)
    for name, scores in found["baselines"].items():
        assert scores == results["test"]["baselines"][name]
    assert set(results["test"]["baselines"]) - set(found["baselines"]) <= {"bag of words"}
    assert not any(file in note for note in found["notes"])  # a number that is new is no unknown label


def test_people_read_the_scores_last(home, capsys):
    assert main(["evaluate", str(home / "spans"), str(home / "dev.conll"), "--worst", "1"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[-2].split()[1] == "model"
    assert any("baseline:" in line for line in lines[-8:])


def test_a_folder_of_another_maker_is_scored_without_baselines(home, tmp_path):
    for file in (home / "spans" / "export").iterdir():
        if file.name != SETTINGS:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    found = score_labeled(bertkit.Tagger.load(tmp_path), [str(home / "dev.conll")], TaggedConfig(), worst=0)
    assert found["baselines"] == {}
    assert found["worst"] == []
    assert 0 <= found["f1"] <= 1
    assert found["sentences"] == 20


def test_a_model_that_writes_bioes_is_scored_by_its_spans(home, tmp_path, capsys):
    for file in (home / "spans" / "export").iterdir():
        if file.name != SETTINGS:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    before = evaluated(capsys, tmp_path, home / "dev.conll", "--scheme", "iob2")
    config = json.loads((tmp_path / "config.json").read_text())
    # Every span of the grammar that the model finds begins with B-; as S- each is a span of one word.
    config["id2label"] = {number: label.replace("B-", "S-") for number, label in config["id2label"].items()}
    config["label2id"] = {label: int(number) for number, label in config["id2label"].items()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    after = evaluated(capsys, tmp_path, home / "dev.conll")
    assert not any("S-" in tag for sentence in after["worst"] for tag in sentence["predicted"])
    assert before["gold"] == after["gold"]


def test_labels_that_the_model_does_not_know_are_noted_with_their_place(home, tmp_path, capsys):
    (tmp_path / "new.conll").write_text("anna\tB-NEW\nsings\tO\n")
    (note,) = [note for note in evaluated(capsys, home / "spans", tmp_path / "new.conll")["notes"] if "NEW" in note]
    assert "new.conll:1" in note


def test_a_file_without_a_sentence_is_named_and_no_setting_of_fine_tuning(home, tmp_path, capsys):
    (tmp_path / "empty.conll").write_text("\n")
    assert main(["evaluate", str(home / "spans"), str(tmp_path / "empty.conll")]) == 2
    told = capsys.readouterr().err
    assert "empty.conll" in told
    assert "data.train" not in told


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["spans", "nothing.conll"], "nothing.conll"),
        (["spans", "dev.conll", "--mask-rate", "0.2"], "--mask-rate … not a masked-language model"),
        (["spans", "dev.conll", "--worst", "-1"], "--worst … -1"),
        (["spans", "dev.conll", "--tag-column", "9"], "tag_column=9"),
        (["texts", "dev.conll"], "dev.conll"),
    ],
)
def test_a_mistake_is_named_and_exits_with_two(home, words, complaint, capsys):
    run, file, *flags = words
    assert main(["evaluate", str(home / run), str(home / file), *flags]) == 2
    assert tells(capsys.readouterr().err, complaint)

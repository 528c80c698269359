"""Confidence: the temperature is found again, errors are those counted by hand, and no decision changes."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
from grammar import write_conll

import bertkit
from bertkit.cli import main
from bertkit.finetune.answers import LEGAL_SPANS, SPAN_POWER, predict_labels, softmax
from bertkit.finetune.predict.settings import read_settings
from bertkit.finetune.tasks import TASKS
from bertkit.finetune.tasks.calibration import (
    OF_LABELS,
    binned,
    calibration_scores,
    fit_span_power,
    fit_temperature,
    span_surprise,
)
from bertkit.finetune.windows import Row
from data_pipelines.labels.decoding import log_likelihood, tag_rules
from data_pipelines.labels.sentence import Sentence

SMALL = ["train.epochs=3", "train.global_batch=8", "train.micro_batch=8", "optim.lr=0.02", "model.like=demo"]


def test_the_temperature_of_sampled_labels_is_found_again():
    random = np.random.default_rng(0)
    logits = random.normal(scale=2, size=(20_000, 5))
    labels = np.array([random.choice(5, p=share) for share in softmax(logits)])
    for temperature in (0.5, 1.0, 3.0):

        def surprise(tried, hot=logits * temperature):
            return -np.log(softmax(hot / tried)[range(len(labels)), labels]).sum()

        assert fit_temperature(surprise) == pytest.approx(temperature, rel=0.05)


def test_the_temperature_of_sampled_sequences_is_found_again():
    """Drawn by rejection: labels of each word by itself, kept where the rules allow the sentence."""
    random, rules = np.random.default_rng(1), tag_rules(("O", "B-a", "I-a"), "iob2")
    logits, labels, counts = [], [], []
    while len(counts) < 4000:
        here = random.normal(scale=2, size=(3, 3))
        drawn = [random.choice(3, p=share) for share in softmax(here)]
        if drawn[0] != 2 and all(pair != (0, 2) for pair in itertools.pairwise(drawn)):
            logits.append(here)
            labels += drawn
            counts.append(3)
    logits_WK, label_W = np.concatenate(logits), np.array(labels)
    found = fit_temperature(lambda tried: -log_likelihood(2 * logits_WK / tried, counts, label_W, rules).sum())
    assert found == pytest.approx(2, rel=0.1)


def test_rounding_of_logits_does_not_move_the_temperature():
    """The least surprise is flat: what is rounded there moves it by the root of that."""
    random, labels = np.random.default_rng(3), ("a", "b", "c")
    sentences = [Sentence(["w"], [random.choice(labels)], "", []) for _ in range(50)]
    rows = [Row(np.zeros(1, int), np.arange(1), np.arange(1), index) for index in range(50)]
    logits = random.normal(scale=2, size=(50, 3)).astype(np.float32)

    def fitted(logits):
        surprise = OF_LABELS.surprise(lambda rows: [([*range(50)], logits)], sentences, rows, labels, {})
        return fit_temperature(lambda tried: surprise(tried).sum())

    rounded = [logits * np.float32(1 + sign * 2e-7) for sign in random.choice([-1, 1], size=(20, 50, 3))]
    assert [fitted(each) for each in rounded] == pytest.approx([fitted(logits)] * 20, rel=3e-5)


def test_spans_are_as_sure_as_they_are_right_however_sure_the_words_are():
    """Spans of one word, of which the model is surer than it may be: they are right by a power of its probability."""
    random, labels, settings = np.random.default_rng(2), ("O", "B-a", "I-a"), {"scheme": "iob2", LEGAL_SPANS: True}
    gap = random.uniform(0.1, 3, 20_000)
    logits = np.stack([0 * gap, gap, 0 * gap - 30], axis=1)
    right = random.random(len(gap)) < (1 / (1 + np.exp(-gap))) ** 2.5
    sentences = [Sentence(["w"], ["B-a" if each else "O"], "", []) for each in right]
    rows = [Row(np.zeros(1, int), np.arange(1), np.arange(1), index) for index in range(len(gap))]

    def predicted(**more):
        return predict_labels(lambda rows: [([*range(len(gap))], logits)], sentences, rows, labels, settings | more)

    usual = predicted()
    power = fit_span_power(lambda tried: span_surprise(OF_LABELS, zip(sentences, usual, strict=True))(tried).sum())
    assert power == pytest.approx(2.5, rel=0.05)
    mended = predicted(**{SPAN_POWER: power})
    before, after = (calibration_scores([{"error": binned(OF_LABELS, sentences, each)}]) for each in (usual, mended))
    assert after["error"] < 0.02 < 0.2 < before["error"]
    assert after["words"] == before["words"]
    assert [tags for tags, _ in mended] == [tags for tags, _ in usual]


@pytest.mark.parametrize("power", ["NaN", "Infinity", "-1", "0", '"2"', "null", "1" + "0" * 400])
def test_a_power_that_makes_no_confidence_is_refused(power, tmp_path):
    (tmp_path / "tagging.json").write_text(f'{{"max_length": 64, "span_power": {power}}}')
    with pytest.raises(ValueError, match="span_power"):
        read_settings(tmp_path)
    (tmp_path / "tagging.json").write_text('{"max_length": 64, "span_power": 2.5}')
    assert read_settings(tmp_path)["span_power"] == 2.5


def test_a_dev_set_without_mistakes_makes_a_model_surer_by_how_much_it_holds():
    """Words that are all right, with a logit of 5 above the other label. Nothing to learn from leaves it at 1."""

    def fitted(num_words):
        return fit_temperature(lambda temperature: num_words * np.log1p(np.exp(-5 / temperature)))

    assert fit_temperature(lambda temperature: 0.0) == pytest.approx(1, rel=1e-3)
    assert 0.95 < fitted(10) < 1
    assert 0.4 < fitted(10_000) < fitted(100) < fitted(10)


def test_the_error_that_dev_shows_is_of_temperatures_that_the_other_half_of_dev_chose(monkeypatch):
    """Even sentences are right and odd ones wrong, so that each half wants what is bad for the other."""
    from bertkit.finetune import evaluation

    words = 40
    sentences = [Sentence(["w"] * words, ["ab"[index % 2]] * words, "", []) for index in range(6)]
    rows = [Row(np.zeros(words, int), np.arange(words), np.arange(words), index) for index in range(6)]
    logits = np.tile([[2.0, 0.0]], (6 * words, 1))
    labeled = SimpleNamespace(labels=("a", "b"), settings={"scheme": "plain"})
    data = SimpleNamespace(task=SimpleNamespace(calibration=OF_LABELS), labeled=labeled)
    trainable = SimpleNamespace(accelerator=SimpleNamespace(process_index=0))
    monkeypatch.setattr(evaluation, "_of_all_ranks", lambda value, trainable: [value])
    answered = evaluation.Answered("dev", [[*range(6)]], sentences, rows, lambda rows: iter([([*range(6)], logits)]))
    found = evaluation.fit_temperatures(data, answered, trainable)
    for_even, for_odd = (each["temperature"] for each in found.crossed)
    assert for_even == pytest.approx(4, rel=0.01)
    assert for_odd < 0.6 < found.fitted["temperature"]
    assert found.of("dev") == found.crossed
    assert found.of("test") == (found.fitted,)


def test_a_rank_without_a_text_takes_part_in_the_scores(monkeypatch):
    """The only text is with the other rank, which would wait for ever."""
    from bertkit.finetune import evaluation

    labeled, text = SimpleNamespace(labels=("a", "b"), settings={}), Sentence(["w"], ["a"], "", [])
    data = SimpleNamespace(task=TASKS["classification"], labeled=labeled, sentences=lambda part: [text])
    answered = evaluation.Answered("dev", [[0], []], [], [], lambda rows: iter(()))
    monkeypatch.setattr(evaluation, "ask_once", lambda *_: answered)
    monkeypatch.setattr(evaluation, "_of_all_ranks", lambda value, trainable: [[["a"]], value])
    assert evaluation.evaluate(data, "dev", None)["accuracy"] == 1


def test_errors_are_those_counted_by_hand_and_ranks_add_them_up():
    def answer(gold, tags, sure, spans=None):
        return Sentence(["w"] * len(gold), gold, "", []), (tags, SimpleNamespace(words=sure, spans=spans))

    # One bin holds 0.9 and 0.92, of which one is right; another 0.5, which is right.
    given = [answer(["a", "b"], ["a", "a"], [0.90, 0.92]), answer(["a"], ["a"], [0.5])]
    expected = (abs(0.90 + 0.92 - 1) + abs(0.5 - 1)) / 3
    alone = binned(OF_LABELS, *zip(*given, strict=True))
    shares = [{"error": binned(OF_LABELS, *zip(one, strict=True))} for one in given]
    assert calibration_scores([{"error": alone}]) == {"error": pytest.approx(expected)}
    assert calibration_scores(shares) == {"error": pytest.approx(expected)}

    # Spans count before words: one right at 0.7, one with a wrong border at 0.4.
    spans = {(0, 1): 0.7, (2, 3): 0.4}
    sentence = answer(["B-x", "O", "B-x", "I-x"], ["B-x", "O", "B-x", "O"], [1.0, 1.0, 1.0, 0.0], spans)
    found = calibration_scores([{"error": binned(OF_LABELS, *zip(sentence, strict=True))}])
    assert found["error"] == pytest.approx((0.3 + 0.4) / 2)
    assert found["words"]["error"] == 0


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrated")
    write_conll(folder / "train.conll", 30)
    write_conll(folder / "dev.conll", 15, seed=1)
    data = [f"data.train={folder / 'train.conll'}", f"data.dev={folder / 'dev.conll'}"]
    assert main(["finetune", "ner", *data, *SMALL, f"run.dir={folder / 'run'}"]) == 0
    return folder


def test_the_export_is_calibrated_and_says_by_what(home):
    (seed,) = json.loads((home / "run" / "scores.json").read_bytes())["seeds"]
    settings = json.loads((home / "run" / "export" / "tagging.json").read_bytes())
    assert settings["temperature"] == seed["temperature"] != 1
    assert settings["span_power"] == seed["span_power"] != 1
    assert {"error", "error_before", "words"} <= seed["dev"]["calibration"].keys()
    model = bertkit.load(home / "run" / "export")
    newest = sorted((home / "run" / "seed-0" / "checkpoints").glob("step-*"))
    trained = [bertkit_tensors(path)["model.head.classifier.weight"] for path in newest]
    exported = model.head.classifier.weight.detach().numpy() * seed["temperature"]
    assert any(np.allclose(exported, weight, atol=1e-6) for weight in trained)


def bertkit_tensors(path):
    from safetensors.numpy import load_file

    return load_file(path / "model.safetensors")


def test_every_backend_is_equally_sure(home, tmp_path):
    pytest.importorskip("onnxruntime")
    assert main(["export", str(home / "run"), str(tmp_path / "onnx"), "--format", "onnx"]) == 0
    torch, onnx = (bertkit.Tagger.load(folder) for folder in (home / "run", tmp_path / "onnx"))
    words = ["anna", "paints", "the", "old", "house"]
    assert onnx.tag(words).tags == torch.tag(words).tags
    assert onnx.tag(words).confidences == pytest.approx(torch.tag(words).confidences, abs=1e-4)


def test_without_dev_there_is_no_temperature(home, tmp_path):
    assert main(["finetune", "ner", f"data.train={home / 'train.conll'}", *SMALL, f"run.dir={tmp_path / 'run'}"]) == 0
    assert "temperature" not in json.loads((tmp_path / "run" / "scores.json").read_bytes())["seeds"][0]
    assert "temperature" not in json.loads((tmp_path / "run" / "export" / "tagging.json").read_bytes())

"""A judge counts the good sentences that are the likelier ones, tells ties and intervals, and agrees with others."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
from grammar import write_corpus
from reference import reference_transformers
from small_model import save_small_model

import bertkit
from bertkit.cli import main
from bertkit.config.recipe import read_recipe
from bertkit.evaluate.config import JudgeConfig
from bertkit.evaluate.judge import EncodedPairs, interval, judge_folder, summary
from bertkit.evaluate.minimal_pairs import MinimalPair
from bertkit.pretrain.data import rows_of_run
from bertkit.pretrain.objectives import Objective
from bertkit.pretrain.pairs import pair_scorer
from bertkit.ship.export import export_onnx
from data_pipelines.vocab.tokenizer import load_tokenizer

torch.set_num_threads(1)
WORDS = "anna paints the old house near station river sees a bird and unpaintable otherwise".split()  # noqa: SIM905


def pair(paradigm: str, group: str = "", good: str = "a b", bad: str = "b a") -> MinimalPair:
    return MinimalPair(good, bad, paradigm, group, "file:1")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    corpus = write_corpus(folder / "text.txt", count=60)
    save_small_model(folder / "model", corpus, vocab_size=90, positions=40)
    loaded = bertkit.load(folder / "model")
    torch.manual_seed(0)
    for parameter in loaded.parameters():  # so that sentences differ visibly
        parameter.data += 0.2 * torch.randn_like(parameter)
    bertkit.save(loaded, folder / "model")
    return folder / "model"


def random_pairs(count: int, seed: int = 0) -> list[MinimalPair]:
    draw = random.Random(seed)
    pairs = []
    for number in range(count):
        good = draw.choices(WORDS, k=draw.randint(2, 9))
        bad = draw.sample(good, len(good)) if number % 2 else [*good[:-1], draw.choice(WORDS)]
        pairs.append(pair(f"p{number % 3}", "ab"[number % 2], " ".join(good) + ".", " ".join(bad) + "."))
    return pairs


def test_accuracy_by_paradigm_and_group_with_ties_as_halves():
    pairs = [pair("x", "g"), pair("x", "g"), pair("y", "g"), pair("z")]
    found = summary(pairs, np.array([[-1.0, -2], [-3, -3], [-5, -4], [-1, -9]]))
    accuracies = {name: row["accuracy"] for name, row in found["paradigms"].items()}
    assert accuracies == {"x": 0.75, "y": 0.0, "z": 1.0}
    assert found["groups"]["g"]["accuracy"] == pytest.approx(0.375)  # paradigms count alike
    assert found["accuracy"] == pytest.approx((0.75 + 0 + 1) / 3)
    assert (found["ties"], found["paradigms"]["x"]["ties"], found["num_pairs"]) == (1, 1, 4)


def test_intervals_are_wilsons_and_narrow_with_pairs():
    points = np.array([1.0] * 8 + [0.0] * 2)
    mean, low, high = interval([points])
    assert (mean, low, high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)
    assert interval([np.ones(20)])[2] == 1
    assert interval([np.ones(20)])[1] == pytest.approx(20 / (20 + 1.96**2), abs=1e-4)
    wide, narrow = interval([points]), interval([points, points])
    assert narrow[0] == wide[0]
    assert narrow[2] - narrow[1] < wide[2] - wide[1]


@pytest.mark.parametrize("method", ["plain", "word-wise"])
def test_the_same_scores_as_padded_rows_through_transformers(model, method):
    transformers = reference_transformers()
    pairs = random_pairs(40)
    judgment = judge_folder(str(model), pairs, JudgeConfig(method=method), None)
    oracle = transformers.AutoModelForMaskedLM.from_pretrained(model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    expected = [[padded_score(oracle, tokenizer, text, method) for text in (p.good, p.bad)] for p in pairs]
    np.testing.assert_allclose(judgment.scores_P2, expected, rtol=1e-4)
    winners = [record["winner"] for record in judgment.predictions()]
    assert winners == ["tie" if good == bad else "good" if good > bad else "bad" for good, bad in expected]
    assert {"good", "bad"} <= set(winners)


def padded_score(oracle, tokenizer, text: str, method: str) -> float:
    """One padded row for each token, written anew from what the method says."""
    encoded = tokenizer(text, padding="max_length", max_length=40, return_tensors="pt")
    ids, words = encoded["input_ids"][0], encoded.word_ids()
    places = [place for place, word in enumerate(words) if word is not None]
    rows = ids.repeat(len(places), 1)
    for row, place in zip(rows, places, strict=True):
        for other, word in enumerate(words):
            if other == place or (method == "word-wise" and other > place and word == words[place]):
                row[other] = tokenizer.mask_token_id
    with torch.no_grad():
        logits = oracle(input_ids=rows, attention_mask=encoded["attention_mask"].repeat(len(places), 1)).logits
    log_probs = logits[range(len(places)), places].log_softmax(-1)
    return float(log_probs[range(len(places)), ids[places]].double().sum())


@pytest.mark.parametrize(("backend", "furthest"), [("bf16", 0.05), ("onnx", 1e-4)])
def test_another_backend_gives_the_same_scores_but_for_rounding(model, tmp_path, backend, furthest):
    pairs = random_pairs(40)
    folder = model
    if backend == "onnx":
        folder = tmp_path / "graph"
        export_onnx(model, folder)
    expected, found = (
        judge_folder(str(path), pairs, JudgeConfig(), None, name).scores_P2
        for path, name in ((model, "torch"), (folder, backend))
    )
    assert (expected != found).any()
    np.testing.assert_allclose(found, expected, rtol=furthest)


def test_weights_judge_with_torch_and_a_graph_alone_by_itself(model, tmp_path):
    """A graph predicts every token of every sentence, so it is taken only where nothing else is."""
    export_onnx(model, tmp_path / "graph")
    pairs = random_pairs(4)
    alone = judge_folder(str(tmp_path / "graph"), pairs, JudgeConfig(), None)
    as_graph = judge_folder(str(tmp_path / "graph"), pairs, JudgeConfig(), None, "onnx")
    np.testing.assert_array_equal(alone.scores_P2, as_graph.scores_P2)
    beside = tmp_path / "both"
    shutil.copytree(model, beside)
    shutil.copytree(tmp_path / "graph/onnx", beside / "onnx")
    both = judge_folder(str(beside), pairs, JudgeConfig(), None)
    np.testing.assert_array_equal(both.scores_P2, judge_folder(str(model), pairs, JudgeConfig(), None).scores_P2)


def test_a_sentence_the_model_cannot_read_is_told_with_its_place(model):
    for text in ("house " * 60, " "):
        with pytest.raises(ValueError, match=r"file:1: .* \d+ tokens"):
            judge_folder(str(model), [pair("x", good=text)], JudgeConfig(), None)


def test_pairs_that_are_the_same_to_the_tokenizer_tie(model):
    judgment = judge_folder(str(model), [pair("x", good="The HOUSE", bad="the house")], JudgeConfig(), None)
    assert judgment.predictions()[0]["winner"] == "tie"
    assert judgment.facts["accuracy"] == 0.5


def test_the_verb_writes_a_table_a_page_predictions_and_json(model, tmp_path, capsys):
    pairs = random_pairs(12)
    keys = ("good", "bad", "paradigm", "group")
    lines = [json.dumps({key: getattr(p, key) for key in keys}) for p in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    argv = ["judge", str(model), str(tmp_path / "pairs.jsonl"), "--page", str(tmp_path / "new/page.html")]
    assert main([*argv, "--predictions", str(tmp_path / "p.jsonl")]) == 0
    printed = capsys.readouterr()
    assert {"p0", "p1", "p2", "a", "b", "all"} <= {line.split()[0] for line in printed.out.splitlines() if line.strip()}
    assert "no n-gram model" in printed.err
    predictions = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [record["good"] for record in predictions] == [p.good for p in pairs]
    page = (tmp_path / "new/page.html").read_text()
    assert "p2" in page
    assert "Worst mistakes" in page
    assert main([*argv, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    points = [{"good": 1, "tie": 0.5, "bad": 0}[p["winner"]] for p in predictions if p["paradigm"] == "p0"]
    assert facts["paradigms"]["p0"]["accuracy"] == sum(points) / len(points)
    assert facts["chance"] == 0.5


def test_a_run_judges_while_it_trains_and_its_own_rows_train_the_ngram_model(tmp_path, capsys):
    corpus = write_corpus(tmp_path / "text.txt", count=40)
    texts = [line for line in corpus.read_text().splitlines() if line.strip()][:6]
    backwards = [" ".join(reversed(text.split())) for text in texts]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(texts, backwards, strict=True)))
    sizes = ["model.hidden_size=16", "model.num_hidden_layers=1", "model.num_attention_heads=2"]
    sizes += ["model.intermediate_size=32", "tokenizer.vocab_size=100", "data.seq_len=32", "run.num_workers=0"]
    places = [f"data.corpus={corpus}", f"data.cache_dir={tmp_path / 'cache'}", f"run.dir={tmp_path / 'run'}"]
    budget = ["train.steps=2", "train.global_batch=2", f"eval.pairs={tmp_path / 'pairs.tsv'}", "eval.every=1"]
    assert main(["pretrain", "bert-mini", *places, *sizes, *budget]) == 0
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    judged = [record for record in metrics if record["kind"] == "pairs"]
    assert [record["step"] for record in judged] == [1, 2]
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "Minimal pairs" in (tmp_path / "run" / "report.html").read_text()
    argv = ["judge", str(tmp_path / "run"), str(tmp_path / "pairs.tsv"), "--json"]
    capsys.readouterr()
    assert main(argv) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ngram_accuracy"] == 1.0
    assert (judged[-1]["accuracy"], judged[-1]["num_pairs"]) == (facts["accuracy"], facts["num_pairs"])
    assert facts["ngram"]["order"] == 5
    assert facts["ngram"]["num_tokens"] > 100
    assert rows_of_run(tmp_path / "run").is_dir()
    assert main([*argv[:-1], "--ngram", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ngram"] is None


def test_an_objective_that_fills_no_masks_judges_nothing():
    recipe = read_recipe("bert-mini", ["data.corpus=x", "train.steps=1", "eval.pairs=pairs.tsv"])
    silent = Objective(summary="", make_model=lambda start, seed: start.encoder, make_collator=lambda steps: None)
    with pytest.raises(ValueError, match=r"eval.pairs.*masked-lm"):
        pair_scorer(recipe, None, silent, None)
    assert pair_scorer(read_recipe("bert-mini", ["data.corpus=x", "train.steps=1"]), None, silent, None) is None


def test_ranks_share_the_sentences(model):
    pairs = random_pairs(10)
    loaded = bertkit.load(model)
    encoded = EncodedPairs(pairs, load_tokenizer(model), 40)
    alone = encoded.scores(loaded.target_logits, torch.device("cpu"))
    parts: list[torch.Tensor] = []
    for rank in range(3):
        encoded.scores(loaded.target_logits, torch.device("cpu"), rank, 3, lambda part: parts.append(part) or part)
    assert sum((part != 0).sum() for part in parts) == len(encoded.sentences)
    np.testing.assert_allclose(encoded.of_pairs(sum(parts).numpy()), alone, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["nothing.jsonl"], "nothing.jsonl"),
        (["pairs.tsv", "--method", "wise"], "--method"),
        (["pairs.tsv", "--ngram", "-1"], "--ngram"),
        (["pairs.tsv", "--page", "."], "page"),
        (["pairs.tsv", "--predictions", "."], "--predictions"),
        (["pairs.tsv", "--predictions", "none/p.jsonl"], "--predictions"),
        (["pairs.tsv", "--good", "correct"], "pairs.tsv:1"),
    ],
)
def test_mistakes_are_told_before_the_work(model, tmp_path, monkeypatch, capsys, changes, told):
    (tmp_path / "pairs.tsv").write_text("a b\tb a\n")
    monkeypatch.chdir(tmp_path)
    assert main(["judge", str(model), *changes]) == 2
    assert told in capsys.readouterr().err

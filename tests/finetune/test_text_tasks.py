"""Texts, pairs, several labels and numbers are learnt, beside a bag of words, exported and opened by others."""

import json
import random
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from grammar import write_corpus
from reference import reference_transformers

import bertkit
from bertkit.cli import main
from bertkit.config.finetune import LabeledSection, read_finetune_recipe
from bertkit.finetune import train
from bertkit.finetune.batches import collate, drawing_windows, micro_batches, training_batches
from bertkit.finetune.model_with_loss import ModelWithLoss
from bertkit.finetune.tasks import TASKS
from bertkit.finetune.tasks.bag_of_words import bag_of_words
from bertkit.finetune.tasks.classification import CLASSIFICATION
from bertkit.finetune.tasks.multi_label import MULTI_LABEL
from bertkit.finetune.train import finetune
from bertkit.finetune.tuning_data import Steps
from bertkit.finetune.windows import Row, RowForm, WordEncoder, joined_rows, pair_rows, some_windows, text_rows
from bertkit.model import BertConfig, MaskedLM, SequenceClassifier, build_encoder
from data_pipelines.labels.sentence import Sentence
from data_pipelines.masks.plan import Plan
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import load_tokenizer, train_tokenizer

torch.set_num_threads(1)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
WORDS = ["old", "quiet", "house", "river", "yellow"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("texts") / "encoder"
    corpus = CorpusConfig(corpus=[str(write_corpus(folder.parent / "text.txt"))])
    tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=120), folder)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        max_position_embeddings=48,
        hidden_dropout_prob=0.0,
        initializer_range=0.1,
        **SIZES,
    )
    bertkit.save(MaskedLM(build_encoder(config, 0), 0), folder, tokenizer)
    return folder


def record(task: str, rng: random.Random) -> dict:
    words = rng.choices(WORDS, k=4)
    text = " ".join(words)
    return {
        "multi-label": {"text": text, "labels": sorted({"old", "quiet"} & set(words))},
        "regression": {"text": text, "score": 1000.0 + 50 * words.count("old")},
        "pairs": {"text1": words[0], "text2": words[1], "label": f"{words[0][0]}{words[1][0]}"},
        "similarity": {"text1": words[0], "text2": words[1], "score": WORDS.index(words[0]) - WORDS.index(words[1])},
    }[task]


def learnt(task: str, encoder: Path, folder: Path) -> tuple[Path, dict]:
    for seed, part in enumerate(("train", "dev")):
        rng = random.Random(seed)
        lines = [json.dumps(record(task, rng)) for _ in range(400 if part == "train" else 60)]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    changes = [f"data.{part}={folder / f'{part}.jsonl'}" for part in ("train", "dev")]
    changes += [f"model.init={encoder}", f"run.dir={folder / 'run'}", "optim.lr=0.003", "train.epochs=12"]
    assert finetune(read_finetune_recipe(task, changes)) == 0
    return folder / "run" / "export", json.loads((folder / "run" / "scores.json").read_text())


def in_transformers(export: Path, texts: list[str]) -> list[float]:
    transformers = reference_transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(export).eval()
    with torch.no_grad():
        return model(**tokenizer(*texts, return_tensors="pt")).logits[0].tolist()


def test_several_labels_are_learnt_and_opened_by_transformers(encoder, tmp_path):
    export, scores = learnt("multi-label", encoder, tmp_path)
    assert scores["dev"]["mean"] > 0.95
    assert (
        scores["dev"]["baselines"]["bag of words"]["f1"]
        > 0.95
        > scores["dev"]["baselines"]["most frequent labels"]["f1"]
    )
    assert json.loads((export / "config.json").read_text())["problem_type"] == "multi_label_classification"
    tagger = bertkit.Tagger.load(export)
    assert tagger.tag("old house river yellow").to_json()["labels"] == ["old"]
    assert tagger.tag("house quiet old river").to_json()["labels"] == ["old", "quiet"]
    assert tagger.tag("river house river yellow").to_json()["labels"] == []
    ours = tagger.tag("old house river yellow").answer["confidences"]
    theirs = torch.tensor(in_transformers(export, ["old house river yellow"])).sigmoid().tolist()
    assert list(ours.values()) == pytest.approx(theirs, abs=1e-3)


def test_numbers_are_learnt_in_any_unit_and_exported_in_it(encoder, tmp_path):
    export, scores = learnt("regression", encoder, tmp_path)
    assert scores["dev"]["mean"] > 0.8
    assert scores["dev"]["baselines"]["mean of the training numbers"]["r2"] < 0.1
    assert scores["dev"]["baselines"]["bag of words"]["r2"] > 0.5
    assert json.loads((export / "config.json").read_text())["problem_type"] == "regression"
    ours = bertkit.Tagger.load(export).tag("old old river house").to_json()["score"]
    assert 1060 < ours < 1140
    assert ours == pytest.approx(in_transformers(export, ["old old river house"])[0], abs=0.1)


@pytest.mark.parametrize("task", ["pairs", "similarity"])
def test_pairs_are_learnt_with_the_types_that_transformers_gives_them(task, encoder, tmp_path):
    export, scores = learnt(task, encoder, tmp_path)
    assert scores["dev"]["mean"] > 0.9
    tagger = bertkit.Tagger.load(export)
    found = tagger.tag(["old", "quiet"]).to_json()
    assert (found["text1"], found["text2"]) == ("old", "quiet")
    assert tagger.tag("old\tquiet").to_json() == found
    logits = torch.tensor(in_transformers(export, ["old", "quiet"]))
    if task == "pairs":
        assert found["label"] == "oq" == tagger.labels[int(logits.argmax())]
        assert found["confidence"] == pytest.approx(float(logits.softmax(0).max()), abs=1e-3)
    else:
        assert found["score"] == pytest.approx(float(logits[0]), abs=1e-3)
    with pytest.raises(ValueError, match="two texts"):
        tagger.tag("one text alone")


def test_a_folder_that_names_no_task_is_known_by_its_problem_type(encoder, tmp_path):
    export, _ = learnt("multi-label", encoder, tmp_path)
    (export / "tagging.json").unlink()
    assert bertkit.Tagger.load(export).task is MULTI_LABEL


def test_a_pair_lies_between_special_tokens_and_the_longer_text_is_cut():
    form = RowForm(np.array([1]), np.array([2]), 13, between=np.array([2, 2]), has_types=True)
    encoded = {"a": np.arange(10, 13), "b": np.arange(50, 70)}

    class Encoder:
        def __call__(self, sentences):
            return [type("E", (), {"ids_P": encoded[text]}) for (text,) in sentences]

    rows = pair_rows([Sentence(list(pair), None, "", []) for pair in ("ab", "ba", "bb")], Encoder(), form)
    assert rows[0].ids_L.tolist() == [1, 10, 11, 12, 2, 2, *range(50, 56), 2]
    assert rows[0].type_L.tolist() == [0] * 6 + [1] * 7
    assert rows[1].ids_L.tolist() == [1, *range(50, 56), 2, 2, 10, 11, 12, 2]
    assert [len(row.ids_L) for row in rows] == [13] * 3


@pytest.fixture
def long_texts(encoder) -> tuple[list[Row], SequenceClassifier]:
    """Windows of three texts, of 1, 3 and 5 windows."""
    tokenizer = load_tokenizer(encoder)
    model = SequenceClassifier(bertkit.load(encoder).encoder, ("a", "b"), 0)
    form = RowForm.of(tokenizer, model.config, 12, stride=10)
    texts = [Sentence([" ".join(["old house"] * count)], ["a"], "", [1]) for count in (1, 12, 22)]
    return text_rows(texts, WordEncoder(tokenizer), form), model


def test_windows_of_a_text_answer_by_the_mean_of_their_logits(long_texts):
    rows, model = long_texts
    joined = [row._replace(target_M=np.zeros(1, int)) for row in joined_rows(rows)]
    assert [row.num_windows for row in joined] == [sum(row.sentence == text for row in rows) for text in range(3)]
    assert joined[2].num_windows > joined[1].num_windows > joined[0].num_windows == 1
    logits_MK = model.target_logits(collate(rows))
    mean_NK = torch.stack([logits_MK[[row.sentence == text for row in rows]].mean(0) for text in range(3)])
    expected = torch.nn.functional.cross_entropy(mean_NK, torch.zeros(3, dtype=torch.long), reduction="sum")
    with_loss = ModelWithLoss(model, CLASSIFICATION)
    torch.testing.assert_close(with_loss(collate(joined)), expected)
    torch.testing.assert_close(sum(with_loss(collate([row])) for row in joined), expected)


def test_a_batch_of_long_texts_needs_the_memory_of_its_windows_alone(long_texts, monkeypatch):
    """A micro-batch holds windows, however many a text has."""
    rows, model = long_texts
    needed = []
    monkeypatch.setattr(train, "check_memory", lambda needs, device: needed.append(needs["train.micro_batch"]))
    recipe = read_finetune_recipe("text-classification", ["data.train=a.jsonl", "train.micro_batch=4"])
    for these in (rows, joined_rows(rows)):
        data = SimpleNamespace(rows={"train": these}, start=SimpleNamespace(config=model.config))
        accelerator = SimpleNamespace(num_processes=1, device=None)
        train._check_batch_fits(recipe, data, Steps(batch=8, total=1), accelerator)
    assert needed[0] == needed[1] > 0


def test_of_too_many_windows_every_epoch_draws_others(long_texts):
    rows, model = long_texts
    own = [row for row in rows if row.sentence == 2]
    joined = joined_rows(rows)
    draw = drawing_windows(lambda row, key: row, 2)
    assert draw(joined[0], 7) is joined[0]
    drawn = [draw(joined[2], key) for key in range(40)]
    pairs = [[*first.ids_L, *second.ids_L] for first, second in combinations(own, 2)]
    assert all(row.ids_L.tolist() in pairs for row in drawn)
    assert len({tuple(row.ids_L.tolist()) for row in drawn}) > 1
    assert draw(joined[2], 3).ids_L.tolist() == drawn[3].ids_L.tolist()
    # Each window answers as it does by itself.
    torch.testing.assert_close(
        model.target_logits(collate([some_windows(joined[2], [1, 3])])), model.target_logits(collate([own[1], own[3]]))
    )


def windowed(*num_windows: int) -> list[Row]:
    return [
        Row(np.zeros(n, int), np.zeros(n, int), np.zeros(n, int), index, np.zeros(1, int), None, (1,) * n)
        for index, n in enumerate(num_windows)
    ]


def test_a_micro_batch_counts_windows_and_every_rank_has_as_many():
    shares = [windowed(1, 1, 1, 1), windowed(4, 4, 4, 9)]
    for rank, share in enumerate(shares):
        parts = micro_batches(shares, rank, most=4)
        assert len(parts) == 4
        assert [row for part in parts for row in part] == share
    assert [len(part) for part in micro_batches([windowed(1, 1, 3, 2, 2)], 0, most=4)] == [2, 1, 2]


def test_all_rows_of_a_step_are_in_its_micro_batches():
    rows = windowed(1, 2, 3, 4, 5, 6)
    ((_, batches),) = training_batches(rows, Plan(6, 6, 0), range(1), (0, 1), 6)
    assert sum(len(batch.input_ids) for batch in batches) == 21
    assert sum(len(batch.target_ids) for batch in batches) == 6


def texts_of(*texts: str) -> list[Sentence]:
    return [Sentence([text], None, "", []) for text in texts]


def test_a_bag_of_words_tells_texts_by_words_and_by_pairs_of_them():
    train = texts_of(*["good plot", "bad plot"] * 20, *["not good at all", "not bad at all"] * 20)
    labels = np.array([1, 0] * 20 + [0, 1] * 20)
    asked = texts_of("good plot", "bad plot", "not good at all", "not bad at all", "unheard")
    logits = bag_of_words(train, labels, asked)
    assert logits.argmax(axis=1).tolist()[:4] == [1, 0, 0, 1]
    assert logits.shape == (5, 2)
    assert np.array_equal(logits, bag_of_words(train, labels, asked))


@pytest.mark.parametrize(("suffix", "text"), [
    (".jsonl", '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": []}\n'),
    (".tsv", "text\tlabels\na\tx, y\nb\t\n"),
    (".csv", 'text,labels\na,"x,y"\nb,""\n'),
])  # fmt: skip
def test_labels_are_a_list_or_separated(suffix, text, tmp_path):
    file = tmp_path / f"data{suffix}"
    file.write_text(text)
    labeled = TASKS["multi-label"].read(LabeledSection(train=[str(file)]))
    assert [text.tags for text in labeled.train] == [["x", "y"], []]
    assert labeled.labels == ("x", "y")


@pytest.mark.parametrize(("task", "line", "told"), [
    ("regression", '{"text": "a", "score": "high"}', "'high'"),
    ("regression", '{"text": "a", "score": NaN}', "nan"),
    ("regression", '{"text": "a"}', "tag_column"),
    ("pairs", '{"text": "a", "label": "x"}', "pair_column"),
    ("pairs", '{"text1": "a", "text2": 3, "label": "x"}', "int"),
    ("multi-label", '{"text": "a", "labels": {"x": 1}}', "label_separator"),
])  # fmt: skip
def test_what_cannot_be_read_names_its_line(task, line, told, tmp_path):
    file = tmp_path / "data.jsonl"
    file.write_text(f"{line}\n")
    with pytest.raises(ValueError, match=rf"data\.jsonl:1: .*{told}"):
        TASKS[task].read(LabeledSection(train=[str(file)]))


def test_files_of_pairs_are_tagged_with_their_other_fields_kept(encoder, tmp_path, capsys):
    export, _ = learnt("pairs", encoder, tmp_path)
    capsys.readouterr()
    (tmp_path / "new.jsonl").write_text('{"id": 7, "text1": "old", "text2": "quiet"}\n\n')
    (tmp_path / "new.txt").write_text("old\tquiet\n\n")
    for name, kept in (("new.jsonl", {"id": 7}), ("new.txt", {})):
        assert main(["tag", "--model", str(export), str(tmp_path / name), "--output", "jsonl"]) == 0
        first, *rest = capsys.readouterr().out.splitlines()
        assert json.loads(first) == {**kept, **bertkit.Tagger.load(export).tag(["old", "quiet"]).to_json()}
        assert rest == ["{}" if name == "new.txt" else ""]

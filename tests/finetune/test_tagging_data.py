"""What a tagger learns from: every word, every subword, tags that are repaired or refused by name."""

from pathlib import Path

import pytest
import torch
from telling import tells
from tuning import arguments, run, scores

import bertkit
from bertkit.config.finetune import LabeledSection, StartSection, read_finetune_recipe
from bertkit.finetune.batches import collate
from bertkit.finetune.card import tagger_card
from bertkit.finetune.model_with_loss import ModelWithLoss, class_weights
from bertkit.finetune.predict.scoring import score_labeled
from bertkit.finetune.start import find_given, find_start
from bertkit.finetune.tasks.tagging import TAGGING
from bertkit.finetune.train import finetune
from bertkit.finetune.tuning_data import TuningData, make_tuning_data
from bertkit.finetune.windows import word_rows
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.sentence import Sentence

torch.set_num_threads(1)


def tuning_data(home: Path, **changes) -> TuningData:
    section = LabeledSection(train=[str(home / "train.conll")], dev=[str(home / "dev.conll")], **changes)
    labeled = TAGGING.read(section)
    given = find_given(StartSection(init=str(home / "encoder")), TAGGING.head)
    return make_tuning_data(TAGGING, labeled, find_start(given, "", TAGGING, labeled, home, print), section)


def test_class_weights_favour_rare_labels_and_keep_the_mean(home):
    data = tuning_data(home)
    rows, labels = data.rows["train"], data.labeled.labels
    weights = class_weights(rows, len(labels))
    targets = torch.cat([torch.from_numpy(row.target_M) for row in rows])
    assert weights[targets].mean() == pytest.approx(1.0, abs=1e-5)
    assert weights[labels.index("B-PER")] > weights[labels.index("O")]


def test_all_subwords_of_a_word_learn_its_tag_together(home):
    """The loss is that of the mean of their logits, by hand."""
    data = tuning_data(home, pieces="mean")
    rows = [row for row in data.rows["train"] if len(set(row.word_M.tolist())) < len(row.word_M)][:3]
    assert rows
    for row in rows:
        assert len(row.word_M) == len(row.ids_L) - 2
        assert len(row.target_M) == len(data.labeled.train[row.sentence].words)
    model = ModelWithLoss(data.start.build(0), TAGGING).eval()
    logits, loss = model.target_logits(collate(rows)), torch.zeros(())
    for row, own in zip(rows, logits.split([len(row.word_M) for row in rows]), strict=True):
        words = torch.from_numpy(row.word_M)
        for word, target in enumerate(row.target_M):
            loss = loss - own[words == word].mean(dim=0).log_softmax(0)[target]
    torch.testing.assert_close(model(collate(rows)), loss)


def test_a_tagger_answers_for_a_word_as_it_learnt_to(home, tmp_path):
    assert run(home, tmp_path / "run", "data.pieces=mean", "train.epochs=1") == 0
    tagger = bertkit.Tagger.load(tmp_path / "run")
    found = score_labeled(tagger, [str(home / "dev.conll")], TaggedConfig(), worst=0)
    assert found["accuracy"] == scores(tmp_path / "run")["seeds"][0]["dev"]["accuracy"]
    first = tagger.form._replace(all_subwords=False)
    assert len(word_rows([Sentence(["unseenword"], None, "", [])], tagger.encode, first)[0].index_M) == 1
    assert len(word_rows([Sentence(["unseenword"], None, "", [])], tagger.encode, tagger.form)[0].index_M) > 1


def test_a_card_has_the_scores_of_both_parts_in_the_columns_of_its_task(home):
    recipe = read_finetune_recipe("ner", ["data.train=names.conll", "run.dir=runs/names"])
    found = {part: {"f1": f1, "strict": {"f1": f1 / 2}} for part, f1 in (("dev", 0.5), ("test", 0.4))}
    card = tagger_card(recipe, tuning_data(home), found)
    for told in ("| data | F1 | strict F1 |", "| test | 40.00% | 20.00% |", "token-classification", "names.conll"):
        assert told in card


def test_stray_insides_are_repaired_and_said(tmp_path):
    path = tmp_path / "x.conll"
    path.write_text("a\tB-PER\nb\tI-LOC\n\nc\tB-LOC\nd\tB-PER\n")
    labeled = TAGGING.read(LabeledSection(train=[str(path)]))
    assert labeled.train[0].tags == ["B-PER", "B-LOC"]
    assert any("1 I- tags continue no span" in note and f"{path}:2" in note for note in labeled.notes)
    assert labeled.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def test_a_slip_among_span_tags_is_named_and_makes_no_plain_tags_of_them(tmp_path):
    path = tmp_path / "x.conll"
    path.write_text("a\tB-PER\nb\tI-PER\nc\t0\n")
    with pytest.raises(ValueError, match=r"x\.conll:3: '0'.* 2 .*data\.scheme=plain"):
        TAGGING.read(LabeledSection(train=[str(path)]))
    assert TAGGING.read(LabeledSection(train=[str(path)], scheme="plain")).labels == ("0", "B-PER", "I-PER")
    path.write_text("a\tB-NP\nb\tNN\nc\tVB\n")
    assert TAGGING.read(LabeledSection(train=[str(path)])).settings["scheme"] == "plain"


def test_a_share_of_the_sentences_is_always_the_same_and_grows(home):
    def sentences(share: float) -> set[str]:
        config = LabeledSection(train=[str(home / "train.conll")], train_share=share)
        return {" ".join(sentence.words) for sentence in TAGGING.read(config).train}

    assert sentences(0.2) <= sentences(0.5) <= sentences(1.0)


def test_a_label_seen_only_in_dev_is_named_and_counts_as_a_mistake(home, tmp_path, capsys):
    dev = tmp_path / "dev.conll"
    dev.write_text("anna\tX\tB-PER\nrome\tX\tB-CITY\n")
    assert run(home, tmp_path / "run", f"data.dev={dev}", "train.epochs=1") == 0
    assert tells(capsys.readouterr().err, f"{dev}:2 … 'B-CITY' … training data")
    assert scores(tmp_path / "run")["seeds"][0]["dev"]["types"]["CITY"]["recall"] == 0


def test_a_sentence_longer_than_the_model_is_trained_and_scored_whole(home, tmp_path):
    long = tmp_path / "long.conll"
    long.write_text((home / "train.conll").read_text().replace("\n\n", "\n"))
    assert run(home, tmp_path / "run", f"data.train={long}", f"data.dev={long}", "train.epochs=1") == 0
    found = scores(tmp_path / "run")["seeds"][0]["dev"]
    assert found["gold"] == 80, "gold spans must not be cut with the windows"


def test_every_word_is_trained_on_and_scored_whatever_it_is(home, tmp_path):
    odd = ["\u200b", "\ufeff", "שלום", "\u202eabc", "👨‍👩‍👧", "👍🏽", "x" * 300, "[SEP]", "a b"]
    words = [*odd, *["anna"] * 10_000]
    path = tmp_path / "odd.tsv"
    path.write_text("".join(f"{word}\tX\n" for word in words) + "\nboris\tY\n", encoding="utf-8")
    changes = [f"data.train={path}", f"data.dev={path}", "train.epochs=0.1", "data.max_length=40"]
    assert run(home, tmp_path / "run", *changes) == 0
    found = scores(tmp_path / "run")["seeds"][0]["dev"]
    assert found["words"] == len(words) + 1
    assert sum(row["gold"] for row in found["tags"].values()) == len(words) + 1
    tagged = bertkit.Tagger.load(tmp_path / "run").tag(["", *words])
    assert len(tagged.tags) == len(words) + 1


@pytest.mark.parametrize("task", ["pos", "chunking"])
def test_plain_tags_and_named_columns(home, tmp_path, task, capsys):
    column = "data.tag_column=pos" if task == "pos" else "data.tag_column=chunk"
    dev = (home / "dev.conll").read_text()
    (tmp_path / "dev.conll").write_text(f"{dev}\n{dev.strip().splitlines()[0].replace(dev.split()[0], 'zyzzyva', 1)}\n")
    changes = [*arguments(home, tmp_path / "run")[1:], "data.columns=[word,pos,chunk]", column, "train.epochs=1"]
    assert finetune(read_finetune_recipe(task, [*changes, f"data.dev={tmp_path / 'dev.conll'}"])) == 0
    said = capsys.readouterr()
    assert ("tags: plain" in said.err) == (task == "pos")
    assert ("macro-F1" in said.out) == (task == "pos")

"""Fine-tuning learns, stops and goes on to the same bits, and refuses by name what does not fit."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from grammar import write_conll, write_corpus
from runs import start
from telling import tells

import bertkit
from bertkit.cli import main
from bertkit.config.finetune import LabeledSection, StartSection, read_finetune_recipe
from bertkit.config.recipe import read_recipe, shipped_recipes, to_yaml
from bertkit.finetune import train
from bertkit.finetune.card import tagger_card
from bertkit.finetune.model_with_loss import ModelWithLoss, class_weights, layer_lr_scale
from bertkit.finetune.start import find_given, find_start
from bertkit.finetune.tasks.tagging import TAGGING
from bertkit.finetune.train import finetune
from bertkit.finetune.tuning_data import TuningData, make_tuning_data
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, SequenceClassifier, TokenTagger, build_encoder
from bertkit.model.initialization import fill
from bertkit.run import loop
from bertkit.run.checkpoint import checkpoints
from bertkit.run.optim import build_optimizers
from bertkit.run.ranks import wrap
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import load_tokenizer, train_tokenizer

torch.set_num_threads(1)
SMALL = ["train.epochs=4", "train.global_batch=8", "train.micro_batch=4", "optim.lr=0.02", "run.save_every=3"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


class Died(BaseException):
    """Ends a run as a kill would: no handler of the product catches it."""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Labeled files and an encoder to begin with."""
    folder = tmp_path_factory.mktemp("home")
    write_conll(folder / "train.conll", 40)
    write_conll(folder / "dev.conll", 15, seed=1)
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "text.txt"))])
    tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=120), folder / "encoder")
    config = BertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=48, **SIZES)
    bertkit.save(MaskedLM(build_encoder(config, 0), 0), folder / "encoder", tokenizer)
    return folder


def arguments(home: Path, folder: Path, *changes: str) -> list[str]:
    data = [f"data.train={home / 'train.conll'}", f"data.dev={home / 'dev.conll'}"]
    return ["ner", *data, f"model.init={home / 'encoder'}", f"run.dir={folder}", *SMALL, *changes]


def run(home: Path, folder: Path, *changes: str) -> int:
    name, *rest = arguments(home, folder, *changes)
    return finetune(read_finetune_recipe(name, rest))


def run_until(step: int, home: Path, folder: Path, *changes: str, seed: int = 0) -> None:
    """A run that dies when it is about to compute this step of this seed."""

    def dying(*args, **options):
        if (options["seed"], options["step"]) == (seed, step):
            raise Died
        return real(*args, **options)

    real = loop.train_step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", dying)
        with pytest.raises(Died):
            run(home, folder, *changes)


def final_state(folder: Path, seed: int = 0) -> dict[str, str]:
    path = checkpoints(folder / f"seed-{seed}" / "checkpoints")[-1][1]
    files = json.loads((path / "manifest.json").read_bytes())["files"]
    return {name: files[name]["sha256"] for name in ("model.safetensors", "optimizer.safetensors")}


def scores(folder: Path) -> dict:
    return json.loads((folder / "scores.json").read_bytes())


@pytest.fixture(scope="module")
def undisturbed(home, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run(home, folder, "run.seeds=[0,1]") == 0
    return folder


def test_a_run_learns_and_leaves_what_others_rely_on(undisturbed):
    found = scores(undisturbed)
    assert found["dev"]["mean"] > 0.9
    assert found["dev"]["baselines"]["majority tag"]["f1"] == 0
    assert [seed["seed"] for seed in found["seeds"]] == [0, 1]
    assert found["seeds"][0]["dev"].keys() >= {"f1", "strict", "types", "accuracy", "confusions", "worst"}
    lines = [json.loads(line) for line in (undisturbed / "seed-0" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "dev"] == [5, 10, 15, 20]
    assert {path.name for path in undisturbed.iterdir()} >= {"export", "scores.json", "recipe.yaml", "run.json"}
    assert isinstance(bertkit.load(undisturbed), TokenTagger)


def test_a_kill_in_either_seed_does_not_change_the_result(undisturbed, home, tmp_path):
    folder = tmp_path / "run"
    for seed, step in ((0, 7), (0, 14), (1, 2), (1, 11)):
        run_until(step, home, folder, "run.seeds=[0,1]", seed=seed)
    assert run(home, folder, "run.seeds=[0,1]") == 0
    assert [final_state(folder, seed) for seed in (0, 1)] == [final_state(undisturbed, seed) for seed in (0, 1)]


def test_a_run_of_shards_begins_with_an_outline(undisturbed, home, tmp_path, monkeypatch):
    """Found without FSDP, which no CPU runs here: the outline is filled where it would be sharded."""

    def wrapped(accelerator, model, *rest):
        assert all(param.is_meta for param in model.parameters())
        return wrap(accelerator, fill(model), *rest)

    monkeypatch.setattr(train, "is_sharded", lambda accelerator: True)
    monkeypatch.setattr(train, "wrap", wrapped)
    assert run(home, tmp_path / "run", "run.seeds=[0]") == 0
    assert final_state(tmp_path / "run") == final_state(undisturbed)


def test_a_seed_can_be_added_and_the_others_stay(home, tmp_path, undisturbed):
    assert run(home, tmp_path / "run", "run.seeds=[1]") == 0
    assert run(home, tmp_path / "run", "run.seeds=[1,0]") == 0
    assert final_state(tmp_path / "run", 1) == final_state(undisturbed, 1)
    assert final_state(tmp_path / "run", 0) == final_state(undisturbed, 0)


def test_two_processes_end_in_the_same_bits(undisturbed, home, tmp_path):
    folder = tmp_path / "run"
    started = start(["finetune", *arguments(home, folder, "run.seeds=[0]")], ranks=2, log=tmp_path / "log.txt")
    assert started.wait() == [0, 0], started.said()
    assert final_state(folder) == final_state(undisturbed)
    assert scores(folder)["seeds"][0]["dev"]["f1"] == scores(undisturbed)["seeds"][0]["dev"]["f1"]


def test_a_finished_run_changes_nothing(undisturbed, home, capsys):
    before = final_state(undisturbed)
    assert run(home, undisturbed, "run.seeds=[0,1]") == 0
    assert final_state(undisturbed) == before
    told = capsys.readouterr()
    assert "mean of 2 seeds" in told.out
    assert f"{undisturbed} is finished: seeds 0, 1; the model is in {undisturbed / 'export'}" in told.err


def test_a_run_with_a_seed_to_train_is_not_called_finished(undisturbed, home, tmp_path, capsys):
    shutil.copytree(undisturbed, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "seed-1")
    assert run(home, tmp_path / "run", "run.seeds=[0,1]") == 0
    assert "is finished" not in capsys.readouterr().err


def test_an_encoder_reads_the_sentences_before_it_learns_and_resumes_in_both(home, tmp_path):
    adapting = ("train.adapt_steps=4", "train.epochs=2")
    assert run(home, tmp_path / "whole", *adapting) == 0
    encoder, adapted = (bertkit.load(path) for path in (home / "encoder", tmp_path / "whole" / "adapted"))
    assert isinstance(adapted, MaskedLM)
    assert not torch.equal(encoder.encoder.tokens.weight, adapted.encoder.tokens.weight)
    for step in (2, 6):  # the first is one of adapting
        run_until(step, home, tmp_path / "killed", *adapting)
    assert run(home, tmp_path / "killed", *adapting) == 0
    assert final_state(tmp_path / "killed") == final_state(tmp_path / "whole")
    run(home, tmp_path / "not", "train.epochs=2")
    assert final_state(tmp_path / "not") != final_state(tmp_path / "whole")


def test_several_processes_are_told_to_adapt_first(home, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="adapt_steps"):
        run(home, tmp_path / "run", "train.adapt_steps=2")


def test_without_patience_for_worse_scores_training_ends_early_with_the_best_step(home, tmp_path, capsys):
    changes = ("train.epochs=40", "train.patience=2")
    assert run(home, tmp_path / "run", *changes) == 0
    last = checkpoints(tmp_path / "run" / "seed-0" / "checkpoints")[-1][0]
    assert last < 200
    found = scores(tmp_path / "run")["seeds"][0]
    assert found["step"] < last
    assert "stopped early" in capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "run" / "seed-0" / "metrics.jsonl").read_text().splitlines()]
    assert found["dev"]["f1"] == max(line["f1"] for line in lines if line["kind"] == "dev")


def test_a_frozen_encoder_stays_as_it_was(home, tmp_path):
    assert run(home, tmp_path / "run", "model.freeze=true", "train.epochs=1") == 0
    before, after = (bertkit.load(path).encoder.state_dict() for path in (home / "encoder", tmp_path / "run"))
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("config", [BertConfig, ModernBertConfig])
def test_lower_layers_learn_more_slowly(config):
    model = TokenTagger(build_encoder(config(vocab_size=50, **SIZES)), ["a", "b"])
    scale = layer_lr_scale(model, 0.5)
    assert scale("model.head.classifier.weight") == 1.0
    assert scale("model.encoder.layers.1.mlp_in.weight") == 0.5
    assert scale("model.encoder.layers.0.mlp_in.weight") == 0.25
    assert scale("model.encoder.tokens.weight") == 0.125
    recipe = read_finetune_recipe("ner", ["data.train=x", "optim.lr=0.1"])
    groups = build_optimizers(ModelWithLoss(model, TAGGING), recipe.optim, scale)[0].param_groups
    assert {round(group["lr"] / 0.1, 6) for group in groups} == {1.0, 0.5, 0.25, 0.125}


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


def test_all_subwords_learn_with_inside_after_begin(home):
    data = tuning_data(home, pieces="all")
    for row in data.rows["train"]:
        words = row.word_M.tolist()
        tags = [data.labeled.labels[index] for index in row.target_M]
        assert len(words) == len(row.ids_L) - 2
        assert all(not tags[i].startswith("B-") for i in range(1, len(words)) if words[i] == words[i - 1])
    assert len(data.rows["dev"][0].word_M) == len(data.labeled.dev[0].words)


def test_a_card_has_the_scores_of_both_parts_in_the_columns_of_its_task(home):
    recipe = read_finetune_recipe("ner", ["data.train=names.conll", "run.dir=runs/names"])
    found = {part: {"f1": f1, "strict": {"f1": f1 / 2}} for part, f1 in (("dev", 0.5), ("test", 0.4))}
    card = tagger_card(recipe, tuning_data(home), found)
    for told in ("| data | F1 | strict F1 |", "| test | 40.00% | 20.00% |", "token-classification", "names.conll"):
        assert told in card


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


def test_from_scratch_a_tokenizer_is_trained_on_the_sentences(home, tmp_path):
    changes = ("model.init=", "train.epochs=0.2", "data.train_share=0.5")
    assert run(home, tmp_path / "run", *changes) == 0
    assert (tmp_path / "run" / "tokenizer" / "tokenizer.json").is_file()
    assert run(home, tmp_path / "like", "model.init=", f"model.like={home / 'encoder'}", "train.epochs=0.2") == 0
    assert bertkit.load(tmp_path / "like").config.hidden_size == 16


def test_one_sentence_is_enough(home, tmp_path):
    one = write_conll(tmp_path / "one.conll", 1)
    assert run(home, tmp_path / "run", f"data.train={one}", "data.dev=[]", "train.epochs=2") == 0
    assert bertkit.Tagger.load(tmp_path / "run").tag("anna paints").tags


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


def test_a_label_seen_only_in_dev_is_named_and_counts_as_a_mistake(home, tmp_path, capsys):
    dev = tmp_path / "dev.conll"
    dev.write_text("anna\tX\tB-PER\nrome\tX\tB-CITY\n")
    assert run(home, tmp_path / "run", f"data.dev={dev}", "train.epochs=1") == 0
    assert tells(capsys.readouterr().err, f"{dev}:2 … 'B-CITY' … training data")
    assert scores(tmp_path / "run")["seeds"][0]["dev"]["types"]["CITY"]["recall"] == 0


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
    with pytest.raises(ValueError, match=r"x\.conll:3: '0' is no span tag, but 2 others are; .*data\.scheme=plain"):
        TAGGING.read(LabeledSection(train=[str(path)]))
    assert TAGGING.read(LabeledSection(train=[str(path)], scheme="plain")).labels == ("0", "B-PER", "I-PER")
    path.write_text("a\tB-NP\nb\tNN\nc\tVB\n")
    assert TAGGING.read(LabeledSection(train=[str(path)])).settings["scheme"] == "plain"


def test_a_share_of_the_sentences_is_always_the_same_and_grows(home):
    def sentences(share: float) -> set[str]:
        config = LabeledSection(train=[str(home / "train.conll")], train_share=share)
        return {" ".join(sentence.words) for sentence in TAGGING.read(config).train}

    assert sentences(0.2) <= sentences(0.5) <= sentences(1.0)


def test_a_text_classifier_shares_everything_but_head_and_reader(home, tmp_path):
    rows = [{"text": f"anna {verb} the house", "label": label} for verb, label in (("paints", "a"), ("forgets", "b"))]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 12))
    modern = tmp_path / "modern"  # a classic encoder needs far longer until its first token sees the others
    tokenizer = load_tokenizer(home / "encoder")
    config = ModernBertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=48, **SIZES)
    bertkit.save(build_encoder(config, 0), modern, tokenizer)
    changes = [f"data.train={path}", f"data.dev={path}", f"model.init={modern}", f"run.dir={tmp_path / 'run'}"]
    assert finetune(read_finetune_recipe("text-classification", [*changes, *SMALL, "train.epochs=10"])) == 0
    assert scores(tmp_path / "run")["seeds"][0]["dev"]["accuracy"] == 1.0
    assert isinstance(bertkit.load(tmp_path / "run"), SequenceClassifier)
    tagger = bertkit.Tagger.load(tmp_path / "run")
    assert tagger.tag("anna forgets the house").tags == ["b"]
    assert tagger.tag("anna forgets the house " * 30).tags == ["b"]


@pytest.mark.parametrize(
    ("verb", "recipe", "complaint"),
    [
        ("finetune", "bert-mini", "bert-mini … `bertkit pretrain` … `bertkit finetune`"),
        ("pretrain", "ner", "ner … `bertkit finetune` … `bertkit pretrain`"),
        ("finetune", "nerr", "'nerr' … 'ner'"),
    ],
)
def test_recipes_of_the_two_verbs_are_not_confused(verb, recipe, complaint, capsys, tmp_path):
    assert main([verb, recipe, "data.train=x", f"run.dir={tmp_path / 'run'}"]) == 2
    assert tells(capsys.readouterr().err, complaint)


def test_a_recipe_of_ones_own_says_its_task(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("data: {train: x}\n")
    with pytest.raises(ValueError, match="`bertkit pretrain`"):
        read_finetune_recipe(str(path))
    path.write_text("base: ner\ndata: {train: x}\n")
    assert read_finetune_recipe(str(path)).task == "tagging"
    with pytest.raises(ValueError, match="`bertkit finetune`"):
        read_recipe(str(path))


@pytest.mark.parametrize("name", sorted(shipped_recipes("finetune")))
def test_a_shipped_recipe_says_what_it_is_for_and_prints_itself(name, tmp_path):
    first = shipped_recipes("finetune")[name].read_text().splitlines()[:3]
    assert all(line.startswith("# ") and len(line) <= 118 for line in first)
    assert first[1].startswith("# Needs ")
    assert first[2].startswith("# Takes ")
    recipe = read_finetune_recipe(name, ["data.train=x"])
    (tmp_path / "printed.yaml").write_text(to_yaml(recipe))
    assert read_finetune_recipe(str(tmp_path / "printed.yaml")) == recipe


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("optim.lr=0.5", "optim.lr: 0.02 -> 0.5"),
        ("data.pieces=all", "data.pieces"),
        ("data.train_share=0.5", "data.train_share"),
    ],
)
def test_another_recipe_in_the_folder_is_refused_by_name(undisturbed, home, change, complaint):
    with pytest.raises(ValueError, match="holds a run of another recipe") as caught:
        run(home, undisturbed, "run.seeds=[0,1]", change)
    assert complaint in str(caught.value)


def test_changed_data_is_refused_by_name(home, undisturbed, tmp_path):
    other = write_conll(tmp_path / "other.conll", 41, seed=3)
    with pytest.raises(ValueError, match="the labeled data changed since"):
        run(home, undisturbed, "run.seeds=[0,1]", f"data.train={other}")


def test_labels_that_do_not_fit_the_head_are_refused_with_both_sizes(undisturbed, home, tmp_path):
    other = tmp_path / "other.conll"
    other.write_text("rome\tX\tB-CITY\nis\tX\tO\n")
    with pytest.raises(ValueError, match=r"5 labels.* 3"):
        run(home, tmp_path / "run", f"model.init={undisturbed}", f"data.train={other}")
    assert not (tmp_path / "run").exists()


def test_a_head_of_another_task_is_told_before_any_label_is_read(undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr("bertkit.finetune.tasks.classification.read_parts", lambda *_: pytest.fail("labels were read"))
    (tmp_path / "x.jsonl").write_text('{"text": "anna paints", "label": "art"}\n')
    changes = [f"data.train={tmp_path / 'x.jsonl'}", f"model.init={undisturbed}", f"run.dir={tmp_path / 'run'}"]
    with pytest.raises(ValueError, match=r"holds a TokenTagger, but .* or a SequenceClassifier is needed"):
        finetune(read_finetune_recipe("text-classification", changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", ["init", "like"])
def test_a_vocabulary_that_does_not_fit_the_model_is_told_before_any_label_is_read(home, tmp_path, key, monkeypatch):
    monkeypatch.setattr("bertkit.finetune.tasks.tagging.read_parts", lambda *_: pytest.fail("labels were read"))
    tokenizer = train_tokenizer(
        CorpusConfig(corpus=[str(home / "text.txt")]), TokenizerConfig(vocab_size=120), tmp_path / "odd"
    )
    bertkit.save(build_encoder(BertConfig(vocab_size=50, max_position_embeddings=48, **SIZES), 0), tmp_path / "odd")
    with pytest.raises(ValueError, match=rf"{tokenizer.vocab_size} tokens.* 50"):
        run(home, tmp_path / "run", "model.init=", f"model.{key}={tmp_path / 'odd'}")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["data.train=nowhere.conll"], "there is no file 'nowhere.conll'"),
        (["data.train_share=0"], "data.train_share … (0, 1] … 0"),
        (["run.seeds=[1,1]"], "run.seeds must be distinct"),
        (["optim.layer_decay=2"], "optim.layer_decay … (0, 1]"),
        (["data.tag_colum=3"], "'data.tag_colum' … 'data.tag_column'"),
        (["data.scheme=iob2", "data.tag_column=2"], "iob2"),
        (["train.adapt_steps=2", "train.adapt_minutes=1"], "adapt_minutes"),
        (["train.adapt_steps=2", "model.init="], "model.init"),
        (["train.token_dropout=1"], "train.token_dropout … [0, 1)"),
        (["train.token_dropout=0.1", "task=rewrite"], "train.token_dropout … rewrite"),
    ],
)
def test_a_mistake_is_one_line_and_exit_two(home, tmp_path, changes, complaint, capsys):
    assert main(["finetune", *arguments(home, tmp_path / "run", *changes)]) == 2
    said = capsys.readouterr().err
    assert tells(said, complaint)
    assert "Traceback" not in said

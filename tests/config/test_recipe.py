"""A recipe is read, changed and checked without anything heavy; what differs on a resume is named."""

import subprocess
import sys

import pytest
import yaml
from telling import tells

from bertkit.config.fields import entries, part
from bertkit.config.finetune import FinetuneRecipe, read_finetune_recipe
from bertkit.config.recipe import Recipe, forbidden_changes, read_recipe, read_sections, to_yaml
from bertkit.model.config import BertConfig
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.text.config import CorpusConfig

CORPUS = "data.corpus=my.txt"


def test_the_printed_recipe_is_the_same_recipe(tmp_path):
    recipe = read_recipe("bert-mini", [CORPUS, "train.steps=7", "optim.betas=[0.9, 0.99]", "run.trackers=[a, b]"])
    path = tmp_path / "printed.yaml"
    path.write_text(to_yaml(recipe))
    assert read_recipe(str(path)) == recipe


def test_a_recipe_is_its_base_with_a_few_keys_changed():
    mini, tiny = (
        yaml.safe_load(to_yaml(read_recipe(name, [CORPUS, "run.dir=x"]))) for name in ("bert-mini", "bert-tiny")
    )
    assert {section for section in mini if mini[section] != tiny[section]} == {"model", "train"}
    assert tiny["model"]["hidden_size"] == 128


def test_the_budget_written_last_replaces_the_others():
    assert read_recipe("bert-mini", [CORPUS]).train.minutes == 10
    train = read_recipe("bert-mini", [CORPUS, "train.tokens=1e6"]).train
    assert (train.steps, train.tokens, train.minutes) == (None, 1e6, None)


def test_another_architecture_starts_from_its_own_defaults():
    recipe = read_recipe("bert-mini", [CORPUS, "model.architecture=modernbert", "model.hidden_size=96"])
    assert recipe.model.architecture == "modernbert"
    assert (recipe.model.hidden_size, recipe.model.num_hidden_layers) == (96, 22)


def test_the_run_folder_is_named_after_the_recipe():
    assert read_recipe("bert-mini", [CORPUS]).run.dir == "runs/bert-mini"
    assert read_recipe("bert-mini", [CORPUS, "run.dir=elsewhere"]).run.dir == "elsewhere"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ([], "data.corpus is missing"),
        (["train.stps=3"], "'train.stps' … 'train.steps'"),
        ([CORPUS, "train.stps=3"], "'train.stps' … 'train.steps'"),
        ([CORPUS, "trian.steps=3"], "'trian' … 'train'"),
        ([CORPUS, "model.hiden_size=3"], "'model.hiden_size' … 'model.hidden_size'"),
        ([CORPUS, "model.architecture=brt"], "model.architecture … bert, modernbert, imported"),
        (
            [CORPUS, "model.hidden_size=100", "model.num_attention_heads=3"],
            "model.hidden_size … num_attention_heads … 100 … 3",
        ),
        ([CORPUS, "model.vocab_size=100"], "model.vocab_size … tokenizer.vocab_size"),
        ([CORPUS, "data.seq_len=1024"], "model.max_position_embeddings=512"),
        ([CORPUS, "train.steps=3", "train.minutes=1"], "train.steps … steps and minutes"),
        ([CORPUS, "model.hidden_size=9999999"], "model.hidden_size … 1048576 … 9999999"),
        ([CORPUS, "train.steps=-1"], "train.steps … 0 … -1"),
        ([CORPUS, "train.minutes=1:30"], "train.minutes … '1:30' … base 60"),
        ([CORPUS, "optim.lr=nan"], "optim.lr … 'nan'"),
        ([CORPUS, "run.keep=1"], "run.keep … 2 … 1"),
        ([CORPUS, "tokenizer.extend=5"], "tokenizer.extend needs a tokenizer"),
        ([CORPUS, "model.architecture=imported"], "model.init is missing"),
        ([CORPUS, "train"], "key=value … 'train'"),
    ],
)
def test_a_mistake_names_its_key_and_the_remedy(changes, complaint):
    with pytest.raises(ValueError) as caught:
        read_recipe("bert-mini", changes)
    assert tells(str(caught.value), complaint)


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(ValueError, match=r"'bert-mni'.*'bert-mini'"):
        read_recipe("bert-mni")
    with pytest.raises(ValueError, match=r"no/such\.yaml"):
        read_recipe("no/such.yaml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("train: [", "is not YAML"),
        ("- a\n- b\n", "holds no recipe"),
        ("", "holds no recipe"),
        ("train: {steps: 1, steps: 2}", "'steps' is written twice"),
        ("base: mine.yaml\n", "is not a file"),
        ("base: bert-mini\ntrain: {minutes: 1:30}\n", "train.minutes … '1:30' … base 60"),
        ("base: bert-mini\ntrain: {steps: 010}\n", "train.steps … '010'"),
        (f"base: bert-mini\ntrain: {{steps: {'9' * 5000}}}\n", "train.steps is too large"),
        ("base: bert-mini\nmodel: 3\n", "model … 3"),
        ("base: bert-mini\ntrain: {steps: !!timestamp x}\n", "is not YAML"),
        ("run: 3\n", "run … 3"),
        ("train: 3\n", "train … 3"),
        ("base: bert-mini\ndata: 3\n", "data … 3"),
        ("run: {seed: 1}\n", "model.architecture … bert, modernbert, imported"),
    ],
)
def test_a_broken_file_is_named(tmp_path, text, complaint):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        read_recipe(str(path), [CORPUS])
    assert tells(str(caught.value), complaint)


def test_bases_that_lead_in_a_circle_are_refused(tmp_path):
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(f"base: {two}\n")
    two.write_text(f"base: {one}\n")
    with pytest.raises(ValueError, match="circular"):
        read_recipe(str(one))


@pytest.fixture
def resumed(tmp_path):
    """What forbids to resume a run that this recipe file began."""

    def changes(before: str, recipe) -> list[str]:
        (tmp_path / "recipe.yaml").write_text(before)
        return forbidden_changes(tmp_path / "recipe.yaml", recipe)

    return changes


def test_what_changes_the_result_is_named_and_what_does_not_is_allowed(resumed):
    before = to_yaml(read_recipe("bert-mini", [CORPUS]))
    moved = read_recipe("bert-mini", ["data.corpus=moved.txt", "run.dir=x", "run.save_every=7", "train.micro_batch=8"])
    assert resumed(before, moved) == []
    other = read_recipe("bert-mini", [CORPUS, "optim.lr=0.5", "run.seed=1", "train.steps=5"])
    assert sorted(resumed(before, other)) == [
        "optim.lr: 0.001 -> 0.5",
        "run.seed: 0 -> 1",
        "train.minutes: 10.0 -> None",
        "train.steps: None -> 5",
    ]


def test_a_key_that_an_older_version_did_not_write_had_its_default(resumed):
    for recipe, key in (
        (read_recipe("bert-mini", [CORPUS]), "objective"),
        (read_recipe("bert-mini", [CORPUS]), "clip_norm"),
        (read_finetune_recipe("ner", ["data.train=x"]), "class_weights"),
    ):
        before = yaml.safe_load(to_yaml(recipe))
        del before["train"][key]
        assert resumed(yaml.safe_dump(before), recipe) == []
    before = yaml.safe_load(to_yaml(read_recipe("bert-mini", [CORPUS])))
    del before["train"]["clip_norm"], before["model"]["layer_norm_eps"]
    now = read_recipe("bert-mini", [CORPUS, "train.clip_norm=0.5", "model.layer_norm_eps=0.1"])
    assert resumed(yaml.safe_dump(before), now) == [
        "model.layer_norm_eps: 1e-12 -> 0.1",
        "train.clip_norm: 1.0 -> 0.5",
    ]


@pytest.mark.parametrize("before", ["", "a: [", "- 1", "[" * 5000, "train: {steps: !!int x}"])
def test_a_damaged_recipe_of_a_run_is_named(resumed, before):
    with pytest.raises(ValueError, match=r"recipe.yaml is damaged"):
        resumed(before, read_recipe("bert-mini", [CORPUS]))


def test_fine_tuning_resumes_where_only_places_and_habits_differ(resumed):
    before = to_yaml(read_finetune_recipe("ner", ["data.train=x"]))
    moved = ["data.train=y", "data.errors=replace", "model.init=z", "run.seeds=[1, 2]", "eval.worst=9"]
    assert resumed(before, read_finetune_recipe("ner", moved)) == []
    other = read_finetune_recipe("ner", ["data.train=x", "data.train_share=0.5"])
    assert resumed(before, other) == ["data.train_share: 1.0 -> 0.5"]


def test_sections_are_read_without_what_the_others_lack():
    model, tokenizer = read_sections("bert-mini", "model", "tokenizer", changes=["tokenizer.vocab_size=99"])
    assert (model.hidden_size, tokenizer.vocab_size) == (256, 99)
    with pytest.raises(ValueError, match=r"'model.hiden_size'.*'model.hidden_size'"):
        read_sections("bert-mini", "model", changes=["model.hiden_size=3"])
    with pytest.raises(ValueError, match=r"model.init is missing"):
        read_sections("continued", "model")
    with pytest.raises(ValueError, match=r"'train.stepps'.*'train.steps'"):
        read_sections("bert-mini", "model", changes=["train.stepps=3"])


def test_rows_are_read_without_a_corpus():
    (rows,) = read_sections("bert-mini", "rows", changes=["data.seq_len=40"])
    assert (rows.seq_len, rows.prepared) == (40, None)
    with pytest.raises(ValueError, match=r"data.seq_len must"):
        read_sections("bert-mini", "rows", changes=["data.seq_len=3"])


def test_every_key_has_help():
    leaves = [*entries(Recipe), *entries(FinetuneRecipe)]
    assert {"data.corpus", "data.seq_len", "run.dir", "run.seed", "run.save_every"} <= {leaf.key for leaf in leaves}
    assert {"train.steps", "train.minutes", "train.global_batch"} <= {leaf.key for leaf in leaves}
    assert [leaf.key for leaf in leaves if not leaf.help] == []


def test_sections_hold_the_configs_of_the_rooms_they_feed():
    recipe = read_recipe("bert-mini", [CORPUS, "data.seq_len=64"])
    assert part(recipe.data, CorpusConfig) == CorpusConfig(corpus=["my.txt"])
    assert part(recipe.data, PrepareConfig) == PrepareConfig(seq_len=64)
    shape = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    assert recipe.model.encoder_config(99, 3) == BertConfig(vocab_size=99, pad_token_id=3, **shape, **dropouts)


def test_a_recipe_error_imports_nothing_heavy():
    code = (
        "import sys; from bertkit.config.recipe import read_recipe\n"
        "try: read_recipe('bert-mini', ['train.stps=1'])\n"
        "except ValueError: print(*sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "tokenizers", "accelerate", "rich"} & set(shown)

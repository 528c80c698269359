"""Whatever a recipe file or a command line says, it is done, or refused in one line."""

import pytest
import yaml
from fuzzing import SETTINGS, odd_texts, run, scalars, texts, values, write
from hypothesis import example, given
from hypothesis import strategies as st

from bertkit.cli import VERBS
from bertkit.config.fields import entries
from bertkit.config.finetune import FinetuneRecipe
from bertkit.config.recipe import Recipe

KEYS = sorted({entry.key for entry in entries(Recipe)})
FINETUNE_KEYS = sorted({entry.key for entry in entries(FinetuneRecipe)})
SECTIONS = sorted({key.partition(".")[0] for key in KEYS + FINETUNE_KEYS})
LEAVES = sorted({key.rpartition(".")[2] for key in KEYS + FINETUNE_KEYS})

# What YAML 1.1 reads as another number, a date or a size that nothing holds.
odd_scalars = st.sampled_from(
    ["010", "-0_7", "1:30", "1:60.5", "0x1F", "0b1", "1_000", "9" * 5000, "0" * 5000, "2020-99-99", ".inf", "!!int x"]
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "recipe.yaml"


@given(st.binary(max_size=300) | texts)
@example(b"!!python/object/apply:os.getcwd []")
@example(b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]")
@example("&a [*a]")
@example("a: 1\na: 2")
@example("? {a: 1}\n: 2")
@example("[" * 5000)
@example("base: recipe.yaml")
@example("base: [x]")
@example(b"\xff\xfe\x00")
@SETTINGS
def test_any_bytes_are_a_recipe_or_none(file, data):
    write(file, data)
    for verb in ("pretrain", "finetune"):
        run([verb, str(file), "--print-config"])


sections = st.dictionaries(
    st.sampled_from(SECTIONS) | odd_texts,
    st.dictionaries(st.sampled_from(LEAVES) | odd_texts, values, max_size=4) | values,
    max_size=5,
)


@given(sections)
@SETTINGS
def test_any_sections_are_a_recipe_or_none(file, sections):
    write(file, yaml.dump(sections, allow_unicode=True))
    for verb in ("pretrain", "finetune"):
        run([verb, str(file), "--print-config"])


@given(st.sampled_from(KEYS + FINETUNE_KEYS), odd_scalars)
@SETTINGS
def test_any_scalar_of_yaml_is_a_value_or_none(file, key, scalar):
    section, _, leaf = key.rpartition(".")
    line = f"{section}: {{{leaf}: {scalar}}}" if section else f"{leaf}: {scalar}"
    for verb, base in (("pretrain", "bert-mini"), ("finetune", "ner")):
        write(file, f"base: {base}\n{line}\n")
        run([verb, str(file), "--print-config"])


words_of_changes = scalars.map(str) | values.map(str) | odd_scalars


@given(st.lists(st.tuples(st.sampled_from(KEYS), words_of_changes), max_size=3))
@SETTINGS
def test_any_change_of_a_key_is_taken_or_refused(changes):
    run(["pretrain", "bert-mini", "data.corpus=x", *(f"{key}={value}" for key, value in changes), "--print-config"])


@given(st.lists(st.tuples(st.sampled_from(FINETUNE_KEYS), words_of_changes), max_size=3))
@SETTINGS
def test_any_change_of_a_key_of_fine_tuning_is_taken_or_refused(changes):
    run(["finetune", "ner", "data.train=x", *(f"{key}={value}" for key, value in changes), "--print-config"])


# Verbs that would do real work with what they were given, or read standard input, are left to other tests.
SAFE = sorted(set(VERBS) - {"demo", "bench", "tag", "fill"})
words = st.one_of(
    texts,
    odd_texts,
    st.sampled_from(
        ["--help", "--out", "x", "--corpus", "absent.txt", "--model", "absent", "--json", "train", "doctor", "-", "--"]
    ),
    st.sampled_from(["--vocab-size=-1", "--seq-len=nan", "--part=1/0", "--rate", "1e999", "hf", "bert-mini", "a=b"]),
)


@given(st.sampled_from(SAFE) | words, st.lists(words, max_size=5))
@SETTINGS
def test_any_command_line_is_done_or_refused(file, monkeypatch, verb, arguments):
    monkeypatch.chdir(file.parent)
    run([verb, *arguments])


def test_a_long_recipe_is_answered_soon(tmp_path):
    """Looking at every pair of keys would take minutes."""
    lines = "".join(f"  key{index}: {index}\n" for index in range(5000))
    code, said = run(["pretrain", str(write(tmp_path / "long.yaml", f"base: demo\ndata:\n{lines}")), "--print-config"])
    assert code == 2
    assert "unknown key 'data.key0'" in said

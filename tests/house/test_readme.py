"""The pages tell the truth: every block runs, every command and key they name exists, the translations say the same.

A page is a README. Its `bash` and `python` blocks are run from top to bottom in one folder, which holds at first the
files that a user brings (`bring_files`), and then once more, as by a reader who comes back. `text` blocks are pictures.
tests/support/shortened.py says how long commands are made short.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from grammar import write_conll, write_corpus
from readme_parts import Part, anchors, cells, inline_code, read_parts
from shortened import CHECKOUT, COMMANDS, PYTHON
from stand_ins import stand_in_for

ROOMS = (".", "data_pipelines", "recipes", "bertkit/bench", "bertkit/finetune", "bertkit/ship", "tests")
PAGES = [CHECKOUT / room / "README.md" for room in ROOMS]
PAIRS = [(page, page.with_name("README.zh-CN.md")) for page in PAGES]
ALL = [page for pair in PAIRS for page in pair]
RUN = ("bash", "python")
BASH = ["bash", "-euo", "pipefail", "-c"]


def name(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))


each_page = pytest.mark.parametrize("page", ALL, ids=name)
each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: name(pair[0]))


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("readme")
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "BERTKIT_CACHE": str(folder / "cache")}
    with stand_in_for(
        (*COMMANDS, PYTHON), folder / "commands", os.environ | quiet | {"PYTHONPATH": str(CHECKOUT)}
    ) as environment:
        yield environment


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_runs_from_top_to_bottom_and_again(page, environment, tmp_path):
    blocks = [part for part in read_parts(page) if part.kind == "block" and part.label in RUN]
    assert blocks
    bring_files(tmp_path)
    (tmp_path / "without-torch").mkdir()
    (tmp_path / "without-torch" / "torch.py").write_text("raise ImportError('a block without torch imported it')\n")
    for block in [*blocks, *blocks]:
        if not uses_what_is_absent(block):
            run(block, tmp_path, environment, name(page), refused=why_not_planned(block))


def bring_files(folder: Path) -> None:
    """What a reader brings: a text, another one, labeled sentences and texts; and the recipes of a checkout."""
    write_corpus(folder / "my.txt", count=150)
    write_corpus(folder / "other.txt", count=40, seed=1)
    for seed, split in enumerate(("train", "dev")):
        write_conll(folder / f"{split}.conll", count=16, seed=seed)
        lines = [f'{{"text": "the {noun} is old", "label": "{noun}"}}\n' for noun in ("house", "river") * 8]
        (folder / f"{split}.jsonl").write_text("".join(lines))
    (folder / "recipes").symlink_to(CHECKOUT / "recipes")


def uses_what_is_absent(block: Part) -> bool:
    libraries = re.findall(r"^(?:from|import) (transformers|jieba|dask)\b", block.text, re.MULTILINE)
    return any(importlib.util.find_spec(library) is None for library in libraries)


def why_not_planned(block: Part) -> str | None:
    """Plans are made with one version of torch alone; with every other the page's command says so."""
    from bertkit.plan.fake_cuda import why_not

    return why_not() if block.text.startswith("bertkit plan ") else None


def run(block: Part, place: Path, environment: dict[str, str], page: str, refused: str | None = None) -> None:
    command = [*BASH, block.text if block.label == "bash" else f"{PYTHON} {shlex.quote(block.text)}"]
    if 'return_tensors="np"' in block.text:  # the promise is that torch is not needed
        environment = environment | {"PYTHONPATH": f"{place / 'without-torch'}{os.pathsep}{environment['PYTHONPATH']}"}
        command = [sys.executable, "-c", block.text]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    if refused is not None:
        assert done.returncode == 2, done
        assert refused in done.stderr
    elif done.returncode:
        said = f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        pytest.fail(f"{page}, under {block.section!r}:\n{block.text}\n{said}", pytrace=False)


@each_page
def test_no_block_goes_unrun(page):
    for part in read_parts(page):
        if part.kind == "block":
            assert part.label in (*RUN, "text"), f"```{part.label} under {part.section}"
            if part.label == "text":
                assert not re.search(rf"^\s*({'|'.join(COMMANDS)}|pip|python) ", part.text, re.MULTILINE), part.text


def test_every_page_is_known():
    rooms = [CHECKOUT / name for name in ("data_pipelines", "bertkit", "recipes", "tests")]
    found = {*CHECKOUT.glob("README*.md"), *(path for room in rooms for path in room.rglob("README*.md"))}
    assert found == set(ALL)


@cache
def flags_of(verb: str) -> frozenset[str]:
    """The flags of a verb and of its sub-commands."""
    from bertkit.cli import VERBS, Parser

    parser = Parser(prog=verb)
    getattr(import_module(VERBS[verb].module), verb.replace("-", "_"))(parser)
    inner = [sub for action in parser._actions if isinstance(action.choices, dict) for sub in action.choices.values()]
    return frozenset(flag for each in (parser, *inner) for action in each._actions for flag in action.option_strings)


@cache
def recipe_keys() -> frozenset[str]:
    """Every key of a recipe, of either verb."""
    from bertkit.config.fields import entries
    from bertkit.config.finetune import FinetuneRecipe
    from bertkit.config.recipe import Recipe

    return frozenset(entry.key for recipe in (Recipe, FinetuneRecipe) for entry in entries(recipe))


@each_page
def test_commands_and_keys_named_in_the_text_exist(page):
    from bertkit.cli import VERBS
    from bertkit.config.recipe import shipped_recipes

    recipes = {*shipped_recipes("pretrain"), *shipped_recipes("finetune")}
    for code in [code for part in read_parts(page) if part.kind != "block" for code in inline_code(part.text)]:
        for key in re.findall(r"(?<![\w./-])((?:data|tokenizer|mask|model|train|optim|eval|run)\.\w+)(?==|$)", code):
            assert key in recipe_keys(), f"{code}: no recipe has the key {key}"
        if not code.startswith("bertkit "):
            continue
        verb, *words = code.split()[1:]
        if verb.startswith("-") or verb.isupper():
            continue
        assert verb in VERBS, f"{code}: there is no verb {verb}"
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in flags_of(verb) | {"--help"}, f"{code}: {verb} has no {word}"
        if verb in ("pretrain", "finetune") and words and re.fullmatch(r"[a-z][a-z-]+", words[0]):
            assert words[0] in recipes, f"{code}: there is no recipe {words[0]}"


def test_every_verb_is_told_of():
    from bertkit.cli import VERBS

    told = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for verb in VERBS:
        assert f"bertkit {verb}" in told or f"make {verb}" in told, f"no page tells of {verb}"


def tables(page: Path) -> list[list[list[str]]]:
    return [cells(part.text) for part in read_parts(page) if part.kind == "table"]


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_the_table_of_recipes_lists_those_that_are_shipped(verb):
    from bertkit.config.recipe import shipped_recipes

    recipes = tables(CHECKOUT / "recipes" / "README.md")
    (listed,) = [[row[0].strip("`") for row in rows] for head, *rows in recipes if head[0] == f"`bertkit {verb}`"]
    assert sorted(listed) == sorted(shipped_recipes(verb))


def test_switches_are_accepted_as_written():
    """Also those that no shipped recipe turns: who does not read all of --help finds them here."""
    from bertkit.config.finetune import read_finetune_recipe
    from bertkit.config.recipe import read_recipe

    known = {
        "pretrain": lambda changes: read_recipe("bert-mini", ["data.corpus=x", *changes]),
        "continued": lambda changes: read_recipe("continued", ["data.corpus=x", "model.init=y", *changes]),
        "finetune": lambda changes: read_finetune_recipe("ner", ["data.train=x", *changes]),
    }
    (rows,) = [rows for head, *rows in tables(CHECKOUT / "recipes" / "README.md") if head[0] == "switch"]
    for switch, verbs, _ in rows:
        for verb in inline_code(verbs):
            known[verb](inline_code(switch)[0].split())


def test_the_tables_of_plugins_are_where_the_page_says():
    (rows,) = [rows for head, *rows in tables(CHECKOUT / "recipes" / "README.md") if head[0] == "to add"]
    for _, place, key in rows:
        module, _, table = inline_code(place)[0].rpartition(".")
        assert len(getattr(import_module(module), table)) > 0
        assert set(inline_code(key)) <= {*recipe_keys(), "task", "model_type"}


def test_what_moved_is_where_the_changelog_says():
    text = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")
    (rows,) = [
        re.findall(r"^  \| (.+) \| (.+) \|$", part, re.MULTILINE)
        for part in text.split("\n\n")
        if "| was | is |" in part
    ]
    for was, now in rows[2:]:
        room = re.search(r"the same in `([\w.]+)`", now)
        names = [f"{room[1]}.{name.rpartition('.')[2]}" for name in inline_code(was)] if room else inline_code(now)
        for name in names:
            assert name == "config" or importlib.util.find_spec(name), f"{was}: there is no {name}"


def test_every_room_is_in_the_tree():
    (tree,) = [part.text for part in read_parts(PAGES[0]) if part.label == "text" and "bertkit/\n" in part.text]
    for package in ("data_pipelines", "bertkit"):
        rooms = {path.parent.name for path in (CHECKOUT / package).glob("*/__init__.py")}
        named = set(re.findall(r"^  (\w+)/", tree[tree.index(f"{package}/") :].split("\nrecipes/")[0], re.MULTILINE))
        assert rooms <= named, f"the tree lacks {rooms - named}"


def test_every_folder_of_tests_is_in_its_table():
    told = {name for row in tables(CHECKOUT / "tests" / "README.md")[0] for name in inline_code(row[0])}
    found = {path.parent.name for path in (CHECKOUT / "tests").glob("*/*.py")}
    assert found <= told, f"tests/README.md lacks {found - told}"


@each_page
def test_links_and_pictures_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        path = page.parent / target if target else page
        assert path.is_file(), f"{target} is not there"
        assert path.suffix != ".png" or path.stat().st_size < 150_000, f"{target} is large"
        assert not anchor or anchor in anchors(path), f"{path} has no heading for #{anchor}"


@each_pair
def test_a_translation_links_to_translations(pair):
    page, chinese = (path.read_text(encoding="utf-8") for path in pair)
    assert "[中文](README.zh-CN.md)" in page
    assert "[English](README.md)" in chinese
    links = [re.findall(r"\]\(([^)#]+)", text.replace("[English](README.md)", "")) for text in (page, chinese)]
    expected = [link.replace("README.md", "README.zh-CN.md") for link in links[0] if link != "README.zh-CN.md"]
    assert sorted(links[1]) == sorted(expected)


def skeleton(page: Path) -> list[tuple[str, ...]]:
    """What both languages share: the order of headings (by level), blocks, tables (by shape) and pictures."""
    bones: list[tuple[str, ...]] = []
    for part in read_parts(page):
        if part.kind in ("heading", "image"):
            bones.append((part.kind, part.label if part.kind == "heading" else part.text))
        elif part.kind == "block":
            bones.append((part.kind, part.label, part.text if part.label in RUN else ""))
        elif part.kind == "table":
            bones.append((part.kind, *(str(len(row)) for row in cells(part.text))))
    return bones


@each_pair
def test_a_translation_has_the_same_headings_blocks_and_tables_in_order(pair):
    page, chinese = map(skeleton, pair)
    for ours, theirs in zip(page, chinese, strict=False):
        assert ours == theirs
    assert len(page) == len(chinese)


@each_pair
def test_a_translation_has_the_same_numbers_and_code_in_its_tables(pair):
    for ours, theirs in zip(*map(tables, pair), strict=True):
        for our_row, their_row in zip(ours, theirs, strict=True):
            for our_cell, their_cell in zip(our_row, their_row, strict=True):
                for found in (numbers, inline_code):
                    assert sorted(found(our_cell)) == sorted(found(their_cell)), f"{our_cell!r} and {their_cell!r}"


@each_pair
def test_a_translation_names_the_same_code_in_every_section(pair):
    for ours, theirs in zip(*map(sections, pair), strict=True):
        assert ours[1] == theirs[1], f"{ours[0]} / {theirs[0]}: {ours[1] ^ theirs[1]}"


def sections(page: Path) -> list[tuple[str, set[str]]]:
    """Each heading with the code named in the text under it."""
    found: list[tuple[str, set[str]]] = [("", set())]
    for part in read_parts(page):
        if part.kind == "heading":
            found.append((part.text, set()))
        if part.kind not in ("block", "table"):
            found[-1][1].update(inline_code(part.text))
    return found


def numbers(cell: str) -> list[str]:
    """Figures outside code and links; words such as 'two' may be translated as they please."""
    return re.findall(r"\d+(?:[.,]\d+)*", re.sub(r"`[^`]*`|\]\([^)]*\)", "", cell))

"""README.md tells the truth: every block runs, every command and key it names exists, the translation says the same.

`bash` and `python` blocks are run, each by itself in a folder of its own; `text` blocks are pictures. A block finds
there the files a user brings (see `given_files`) and what earlier blocks made that it names: these blocks are run
first, once. tests/shortened.py says how long commands are made short.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from grammar import write_conll, write_corpus
from readme_parts import Part, cells, inline_code, read_parts
from shortened import CHECKOUT, COMMANDS
from stand_ins import stand_in_for

README, CHINESE = CHECKOUT / "README.md", CHECKOUT / "README.zh-CN.md"
PARTS = read_parts(README)
RUN = ("bash", "python")


@dataclass(frozen=True)
class Block:
    name: str
    """Its section and its place there, such as fine-tune-and-tag-2."""
    language: str
    text: str

    def makes(self) -> set[str]:
        """Files and folders it writes. Launch lines are checked, not run, and make nothing."""
        if self.language != "bash" or self.text.startswith("accelerate "):
            return set()
        return set(re.findall(r"(?:\brun\.dir=|--out |> |\bbertkit (?:import|export) \S+ )([\w./-]+)", self.text))

    def needs(self, made: set[str]) -> set[str]:
        """What it names of all that was made before it, and does not make itself."""
        whole_path = r"(?<![\w./-]){}(?![\w.-])"
        return {path for path in made - self.makes() if re.search(whole_path.format(re.escape(path)), self.text)}


def blocks(parts: list[Part]) -> list[Block]:
    found: list[Block] = []
    for part in parts:
        if part.kind == "block" and part.label in RUN:
            section = re.sub(r"\W+", "-", part.section.lower())
            number = 1 + sum(block.name.rpartition("-")[0] == section for block in found)
            found.append(Block(f"{section}-{number}", part.label, part.text))
    return found


BLOCKS = blocks(PARTS)


class Story:
    """Runs blocks, each once, after those that it needs."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self.folder, self.environment = folder, environment
        self._outcomes: dict[str, str | None] = {}

    def run(self, block: Block) -> None:
        if block.name not in self._outcomes:
            self._outcomes[block.name] = self._outcome(block)
        if complaint := self._outcomes[block.name]:
            pytest.fail(f"README.md, block {block.name}:\n{block.text}\n{complaint}", pytrace=False)

    def _outcome(self, block: Block) -> str | None:
        place = self.folder / block.name
        given_files(place)
        earlier = {path: other for other in BLOCKS[: BLOCKS.index(block)] for path in other.makes()}
        for path in block.needs(set(earlier)):
            self.run(earlier[path])
            _copy(self.folder / earlier[path].name / path, place / path)
        command = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}[block.language]
        done = subprocess.run(
            [*command, block.text], cwd=place, env=self._environment(block), capture_output=True, text=True
        )
        if done.returncode:
            return f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        missing = [path for path in sorted(block.makes()) if not (place / path).exists()]
        return f"it should have made {', '.join(missing)}" if missing else None

    def _environment(self, block: Block) -> dict[str, str]:
        if 'return_tensors="np"' not in block.text:
            return self.environment
        # The promise is that torch is not needed: here, whoever imports it fails.
        without_torch = self.folder / "without-torch"
        without_torch.mkdir(exist_ok=True)
        (without_torch / "torch.py").write_text("raise ImportError('a block without torch imported it')\n")
        return self.environment | {"PYTHONPATH": f"{without_torch}{os.pathsep}{self.environment['PYTHONPATH']}"}


def given_files(folder: Path) -> None:
    """What the README's user brings: a text, another one, labeled sentences and texts; and the checkout's recipes."""
    folder.mkdir()
    write_corpus(folder / "my.txt", count=150)
    write_corpus(folder / "other.txt", count=40, seed=1)
    for seed, split in enumerate(("train", "dev")):
        write_conll(folder / f"{split}.conll", count=16, seed=seed)
        lines = [f'{{"text": "the {noun} is old", "label": "{noun}"}}\n' for noun in ("house", "river") * 8]
        (folder / f"{split}.jsonl").write_text("".join(lines))
    (folder / "recipes").symlink_to(CHECKOUT / "recipes")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


@pytest.fixture(scope="module")
def story(tmp_path_factory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("readme")
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "BERTKIT_CACHE": str(folder / "cache")}
    environment = os.environ | quiet | {"PYTHONPATH": str(CHECKOUT)}
    with stand_in_for(COMMANDS, folder / "commands", environment) as environment:
        yield Story(folder, environment)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_block_runs(block, story):
    for library in ("transformers", "jieba"):
        if re.search(rf"^(?:from|import) {library}\b", block.text, re.MULTILINE):
            pytest.importorskip(library, reason=f"the block uses {library}, which is not installed")
    story.run(block)


def test_no_block_goes_unrun():
    for path in (README, CHINESE):
        for part in read_parts(path):
            if part.kind == "block":
                assert part.label in (*RUN, "text"), f"{path.name}: ```{part.label} under {part.section}"
                if part.label == "text":
                    assert not re.search(rf"^\s*({'|'.join(COMMANDS)}|pip|python) ", part.text, re.MULTILINE), part.text


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


def in_the_text(path: Path) -> list[str]:
    return [code for part in read_parts(path) if part.kind != "block" for code in inline_code(part.text)]


@pytest.mark.parametrize("path", [README, CHINESE], ids=lambda path: path.name)
def test_commands_and_keys_named_in_the_text_exist(path):
    from bertkit.cli import VERBS
    from bertkit.config.recipe import shipped_recipes

    recipes = {*shipped_recipes("pretrain"), *shipped_recipes("finetune")}
    for code in in_the_text(path):
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

    told = README.read_text(encoding="utf-8")
    for verb in VERBS:
        assert f"bertkit {verb}" in told or f"make {verb}" in told, f"README.md lacks {verb}"


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_the_table_of_recipes_lists_those_that_are_shipped(verb):
    from bertkit.config.recipe import shipped_recipes

    tables = [cells(part.text) for part in PARTS if part.kind == "table"]
    (listed,) = [[row[0].strip("`") for row in rest] for first, *rest in tables if first[0] == f"`bertkit {verb}`"]
    assert sorted(listed) == sorted(shipped_recipes(verb))


@pytest.mark.parametrize("path", [README, CHINESE], ids=lambda path: path.name)
def test_switches_are_accepted_as_written(path):
    """Also those that no shipped recipe turns: who does not read all of --help finds them here."""
    from bertkit.config.finetune import read_finetune_recipe
    from bertkit.config.recipe import read_recipe

    known = {
        "pretrain": lambda changes: read_recipe("bert-mini", ["data.corpus=x", *changes]),
        "continued": lambda changes: read_recipe("continued", ["data.corpus=x", "model.init=y", *changes]),
        "finetune": lambda changes: read_finetune_recipe("ner", ["data.train=x", *changes]),
    }
    (rows,) = [
        cells(part.text)[1:]
        for part in read_parts(path)
        if part.kind == "table" and "train.compile=true" in inline_code(part.text)
    ]
    for switch, verbs, _ in rows:
        for verb in inline_code(verbs):
            known[verb](inline_code(switch)[0].split())
    for key in (
        *("batch_warmup", "final_rate", "cosine", "compile", "gradient_checkpointing", "unique_paragraphs"),
        *("freeze", "class_weights", "old_domain", "trackers", "patience"),
    ):
        assert any(key in switch for switch, *_ in rows), f"no row tells of {key}"


@pytest.mark.parametrize("path", [README, CHINESE], ids=lambda path: path.name)
def test_links_and_pictures_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("https://"):
            assert (CHECKOUT / target).is_file(), f"{path.name} points to {target}"
            assert (CHECKOUT / target).stat().st_size < 150_000 or not target.endswith(".png"), f"{target} is large"
    headings = {re.sub(r"[^\w -]", "", part.text.lower()).replace(" ", "-") for part in read_parts(path) if part.label}
    for anchor in re.findall(r"\]\(#([^)]+)\)", text):
        assert anchor in headings, f"{path.name} has no heading for #{anchor}"


def skeleton(path: Path) -> list[tuple[str, ...]]:
    """What both languages share: the order of headings (by level), blocks, tables (by shape) and pictures."""
    bones: list[tuple[str, ...]] = []
    for part in read_parts(path):
        if part.kind in ("heading", "image"):
            bones.append((part.kind, part.label if part.kind == "heading" else part.text))
        elif part.kind == "block":
            bones.append((part.kind, part.label, part.text if part.label in RUN else ""))
        elif part.kind == "table":
            bones.append((part.kind, *(str(len(row)) for row in cells(part.text))))
    return bones


def test_the_translation_has_the_same_headings_blocks_and_tables_in_order():
    for ours, theirs in zip(skeleton(README), skeleton(CHINESE), strict=False):
        assert ours == theirs
    assert len(skeleton(README)) == len(skeleton(CHINESE))


def test_the_translation_has_the_same_numbers_and_code_in_its_tables():
    tables = [[part.text for part in read_parts(path) if part.kind == "table"] for path in (README, CHINESE)]
    for ours, theirs in zip(*tables, strict=True):
        for our_row, their_row in zip(cells(ours), cells(theirs), strict=True):
            for our_cell, their_cell in zip(our_row, their_row, strict=True):
                for found in (numbers, inline_code):
                    assert sorted(found(our_cell)) == sorted(found(their_cell)), f"{our_cell!r} and {their_cell!r}"


def test_the_translation_names_the_same_code_in_every_section():
    for ours, theirs in zip(*(sections(path) for path in (README, CHINESE)), strict=True):
        assert ours[1] == theirs[1], f"{ours[0]} / {theirs[0]}: {ours[1] ^ theirs[1]}"


def sections(path: Path) -> list[tuple[str, set[str]]]:
    """Each heading with the code named in the text under it."""
    found: list[tuple[str, set[str]]] = [("", set())]
    for part in read_parts(path):
        if part.kind == "heading":
            found.append((part.text, set()))
        if part.kind not in ("block", "table"):
            found[-1][1].update(inline_code(part.text))
    return found


def numbers(cell: str) -> list[str]:
    """Figures outside code; words such as 'two' may be translated as they please."""
    return re.findall(r"\d+(?:[.,]\d+)*", re.sub(r"`[^`]*`", "", cell))

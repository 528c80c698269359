"""A recipe's name and key=value changes become one checked and frozen `Recipe`. Nothing heavy is imported."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import yaml

from bertkit.config.fields import MAY_CHANGE, Sections, build, build_group, check_keys, entries, override, plain
from bertkit.config.model_section import ModelSection, check_settable, model_sections
from bertkit.config.sections import BUDGETS, HeldOutConfig, OptimConfig, RunConfig, TrainConfig
from bertkit.config.values import coerce
from bertkit.config.yaml_text import load_yaml
from data_pipelines.bounds import Range
from data_pipelines.masks.config import MaskConfig
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import read_manifest
from data_pipelines.table import did_you_mean
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.stores import StoreFails, is_url
from data_pipelines.vocab.config import TokenizerConfig

_PACKAGE = Path(__file__).parent.parent
Verb = Literal["pretrain", "finetune"]
MIXED_OF_STORES = 8
"""Default of data.mix_shards for rows on a store."""
_OF_ANY_ROWS = ("cache_dir", "cache_gb", "mix_shards")
"""Keys of `data` that say nothing of how rows are made."""

# The sections below extend configs of other rooms, so that each default is defined once and each key is flat.


@dataclass(frozen=True, kw_only=True)
class RowsSection(PrepareConfig):
    """What a recipe says of its rows, whatever text they are made of."""

    # A corpus or a prepared folder that moved is known by its fingerprint.
    prepared: Annotated[str | None, MAY_CHANGE] = None
    """Folder or URL (s3://, gs://, ...) that `bertkit prepare` wrote (one set, or merged parts), instead of
    data.corpus. Its tokenizer, data.seq_len and all other settings of its rows are used."""

    mix_shards: Annotated[int, Range("[0, 2**20]")] = 0
    """Shards whose rows are mixed with each other; 0 mixes all rows. With a number, a run needs only that many shards
    of a store at once, and begins when it has the first one. Default where data.prepared is a URL: 8."""

    cache_gb: Annotated[float, Range("(0, inf)"), MAY_CHANGE] = 20.0
    """Gigabytes of training rows of a store that are kept here at once, in data.cache_dir."""

    cache_dir: Annotated[str | None, MAY_CHANGE] = None
    """Where trained tokenizers and prepared shards are kept for the next run. Default: $BERTKIT_CACHE or
    ~/.cache/bertkit."""


@dataclass(frozen=True, kw_only=True)
class DataSection(RowsSection, CorpusConfig):
    corpus: Annotated[list[str], MAY_CHANGE]

    def __post_init__(self):
        if self.prepared is None:
            CorpusConfig.__post_init__(self)
        elif self.corpus:
            raise ValueError("corpus cannot be set together with data.prepared, which already holds the rows")
        PrepareConfig.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class TokenizerSection(TokenizerConfig):
    path: str | None = None
    """Folder with a tokenizer.json to use as it is, or hf:NAME to download one; none trains one on the corpus."""

    extend: Annotated[int, Range("[0, inf)")] = 0
    """Tokens to add to a given tokenizer: the subwords that training on the corpus would merge next."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    data: DataSection
    tokenizer: TokenizerSection = field(default_factory=TokenizerSection)
    mask: MaskConfig = field(default_factory=MaskConfig)
    model: Annotated[ModelSection, Sections("architecture", model_sections)]
    train: TrainConfig
    optim: OptimConfig = field(default_factory=OptimConfig)
    eval: HeldOutConfig = field(default_factory=HeldOutConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self):
        if self.model.init is not None and self.tokenizer.path is not None:
            raise ValueError("tokenizer.path cannot be set together with model.init, which already has a tokenizer")
        if self.tokenizer.extend and self.model.init is None and self.tokenizer.path is None:
            raise ValueError("tokenizer.extend needs a tokenizer to extend: set model.init or tokenizer.path")
        if self.data.content == "ids" and self.data.prepared is None:
            if self.model.init is None and self.tokenizer.path is None:
                raise ValueError("data.content=ids needs the tokenizer that made the ids: set tokenizer.path")
            if self.tokenizer.extend:
                raise ValueError("tokenizer.extend counts words of a text, and data.content=ids has none")
        check_positions(self.model, self.data)


def check_positions(model: ModelSection, rows: RowsSection) -> None:
    """Refuse rows that are longer than a new model."""
    longest = getattr(model, "max_position_embeddings", None)
    if longest is not None and rows.seq_len > longest:
        raise ValueError(
            f"data.seq_len={rows.seq_len} is longer than model.max_position_embeddings={longest}; raise that"
        )


def read_recipe(name: str, changes: Iterable[str] = ()) -> Recipe:
    """The recipe of this name (or path), with `key=value` changes on top."""
    values = _pretraining_values(name, changes)
    if _prepared(values) is not None:
        values = _with_settings_of_folder(values)
    return build(Recipe, values)


def read_sections(name: str, *sections: str, changes: Iterable[str] = ()) -> tuple[Any, ...]:
    """Only these sections of the recipe of this name (or path), whatever the others lack. `rows` is the part of `data`
    that needs no corpus."""
    values = _pretraining_values(name, changes)
    check_keys(Recipe, values)
    if "rows" in sections and _prepared(values) is not None:
        values = _with_settings_of_folder(values)
    return tuple(
        build_group(Recipe, "data", values, RowsSection) if section == "rows" else build_group(Recipe, section, values)
        for section in sections
    )


def _pretraining_values(name: str, changes: Iterable[str]) -> dict[str, Any]:
    values = recipe_values(name, changes, "pretrain")
    check_settable(values.get("model"))
    return values


def recipe_values(name: str, changes: Iterable[str], verb: Verb) -> dict[str, Any]:
    """What a recipe of this verb says, with its bases below it and `key=value` changes on top, unchecked."""
    values = _load(recipe_path(name, verb), verb)
    # A recipe for fine-tuning names its task; nothing else distinguishes the two kinds in a user's file.
    if ("task" in values) != (verb == "finetune"):
        raise ValueError(_of_another_verb(name, verb))
    changed: dict[str, Any] = {}
    for change in changes:
        override(changed, change)
    return _merge({"run": {"dir": f"runs/{Path(name).stem}"}}, _merge(values, changed))


def recipe_path(name: str, verb: Verb) -> Path:
    """The file of a shipped recipe, or the path itself."""
    if name.endswith((".yaml", ".yml")) or os.sep in name:
        if not Path(name).is_file():
            raise ValueError(f"recipe {name} is not a file")
        return Path(name)
    known = shipped_recipes(verb)
    if name not in known:
        if any(name in shipped_recipes(other) for other in get_args(Verb)):
            raise ValueError(_of_another_verb(name, verb))
        hint = did_you_mean(name, known) or f"; choose one of {', '.join(known)}"
        raise ValueError(f"unknown recipe {name!r}{hint}")
    return known[name]


def shipped_recipes(verb: Verb = "pretrain") -> dict[str, Path]:
    """Name and file of every recipe of a verb, in the checkout or in the installed package."""
    folder = next(folder for folder in (_PACKAGE / "recipes", _PACKAGE.parent / "recipes") if folder.is_dir())
    folder = folder / "finetune" if verb == "finetune" else folder
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def headline(path: Path) -> str:
    """What a recipe is for: its first line."""
    return path.read_text().partition("\n")[0].lstrip("# ")


def to_yaml(recipe: Any) -> str:
    """The resolved recipe, of either verb, as a file that runs again."""
    values = plain(recipe)
    values["train"] = {k: v for k, v in values["train"].items() if k not in BUDGETS or v is not None}
    if values["data"].get("prepared") is not None:
        # The folder brings these; and a segmenter of one's own has a name that no recipe can hold.
        del values["tokenizer"], values["data"]["corpus"], values["data"]["segmenter"]
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=118)


def forbidden_changes(file: Path, recipe: Any) -> list[str]:
    """What keeps the run with this recipe file from resuming: `key: old -> new` for each change that would alter what
    is computed. A key that the file does not have yet had its default."""
    old, new = flat(_read_back(file)), flat_values(recipe)
    known = {entry.key: entry for entry in entries(recipe)}
    defaults = {key: plain(known[key].default) for key in new if known[key].default is not MISSING}
    old = {**defaults, **old}
    fixed = [key for key in {**old, **new} if key not in known or MAY_CHANGE not in known[key].marks]
    return [f"{key}: {old.get(key)!r} -> {new.get(key)!r}" for key in fixed if old.get(key) != new.get(key)]


def flat_values(recipe: Any) -> dict[str, Any]:
    """The resolved recipe as `section.key` to value."""
    return flat(yaml.safe_load(to_yaml(recipe)))


def _read_back(file: Path) -> dict[str, Any]:
    """What `to_yaml` wrote."""
    values = None
    with suppress(yaml.YAMLError, ValueError, RecursionError):
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError(f"{file} is damaged; restore it from a backup, or choose another run.dir")
    return values


def _prepared(values: dict[str, Any]) -> str | None:
    """The prepared folder that a recipe names."""
    data = values.get("data")
    named = data.get("prepared") if isinstance(data, dict) else None
    return coerce(named, get_type_hints(DataSection)["prepared"], "data.prepared")


def _with_settings_of_folder(values: dict[str, Any]) -> dict[str, Any]:
    """A recipe that names a prepared folder, with the settings that the folder's rows were made with."""
    folder, data, tokenizer = _prepared(values), values["data"], values.get("tokenizer")
    assert folder is not None
    for key in tokenizer if isinstance(tokenizer, dict) else ():
        raise ValueError(f"tokenizer.{key} cannot be set together with data.prepared, which already has a tokenizer")
    made_with = _made_with(folder)
    kinds = get_type_hints(DataSection)
    for key, value in made_with.items():
        if key in data and coerce(data[key], kinds[key], f"data.{key}") != value:
            raise ValueError(
                f"data.{key}={data[key]} contradicts data.prepared={folder}, whose rows were made with {value}; "
                f"leave data.{key} out, or prepare the text again"
            )
    if made_with.get("segmenter") not in get_args(kinds["segmenter"]):
        made_with.pop("segmenter", None)
    order = {"mix_shards": MIXED_OF_STORES} if is_url(folder) else {}
    return values | {"data": {"corpus": [], **order, **made_with, **data}}


def _made_with(folder: str) -> dict[str, Any]:
    """How the text of a finished folder was read and cut into rows."""
    try:
        identity = read_manifest(folder)["identity"]
        number, of = identity["part"]
        made_with = {**identity["corpus"], **identity["prepare"]}
    except StoreFails:
        raise
    except ValueError as error:
        raise ValueError(f"data.prepared: {error}") from None
    except (KeyError, TypeError):
        raise ValueError(f"data.prepared: the manifest of {folder} is damaged; prepare again") from None
    if of != 1:
        raise ValueError(
            f"data.prepared={folder} is part {number} of {of}; prepare the others, merge them with "
            f"'bertkit prepare --merge {Path(folder).parent}', and name that folder"
        )
    return {key: value for key, value in made_with.items() if key in DataSection.__dataclass_fields__}


def _load(path: Path, verb: Verb, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe file on top of the one that its `base` names."""
    try:
        values = load_yaml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not YAML: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds no recipe; a recipe has sections such as data, model, train")
    base = values.pop("base", None)
    if base is None:
        return values
    base_path = recipe_path(str(base), verb)
    if base_path in (path, *above):
        raise ValueError(f"{path}: base {base!r} is circular: it builds on this recipe")
    return _merge(_load(base_path, verb, (path, *above)), values)


def _of_another_verb(name: str, verb: Verb) -> str:
    other = "pretrain" if verb == "finetune" else "finetune"
    shipped = ", ".join(shipped_recipes(verb))
    return f"{name} is a recipe for `bertkit {other}`, not for `bertkit {verb}`; choose one of {shipped}"


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Sections of `above` laid over those of `below`, key by key. A budget replaces every budget below it, another
    architecture shares no keys with the one below, and prepared rows need nothing of what would make rows."""
    merged = dict(below)
    if isinstance(below.get("data"), dict) and isinstance(above.get("data"), dict):
        if _prepared(above) is not None:
            merged["data"] = {key: value for key, value in below["data"].items() if key in _OF_ANY_ROWS}
            merged.pop("tokenizer", None)
        elif "corpus" in above["data"]:
            merged["data"] = {key: value for key, value in below["data"].items() if key != "prepared"}
    for name, section in above.items():
        under = merged.get(name, {})
        if not isinstance(under, dict) or not isinstance(section, dict):
            # Where one is a section and the other is not, the other stays: `build` refuses it.
            merged[name] = under if isinstance(section, dict) else section
            continue
        if name == "train" and any(budget in section for budget in BUDGETS):
            under = {key: value for key, value in under.items() if key not in BUDGETS}
        if name == "model" and section.get("architecture", under.get("architecture")) != under.get("architecture"):
            under = {}
        merged[name] = {**under, **section}
    return merged


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested groups as section.key to value."""
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return leaves

"""The model section of a pretraining recipe: a kind for each encoder family, and one for a model that is there already.

The key `architecture` selects the kind. Code reads the values of a section and never tests its kind.
"""

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, Protocol

from bertkit.config.fields import MAY_CHANGE, help_of
from bertkit.model.config import EncoderConfig
from bertkit.model.families import FAMILIES, Family


class ModelSection(Protocol):
    """What every kind answers."""

    @property
    def architecture(self) -> str: ...

    @property
    def init(self) -> str | None:
        """The model to continue with; None for a new one."""

    @property
    def old_domain(self) -> Sequence[str]:
        """Text like that model was trained on before."""

    @property
    def embeddings(self) -> str:
        """How the token embeddings start: "random", "neighbors", or "given" with the model."""

    def encoder_config(self, vocab_size: int, pad_token_id: int | None) -> EncoderConfig:
        """The shape of a new encoder for this tokenizer; refused where `init` names a model, which has its own."""


def model_sections() -> dict[str, type]:
    """The kinds by the value of `architecture`; a family that a plugin adds is one of them at once."""
    return {**{name: _section_of(name, FAMILIES[name]) for name in FAMILIES}, "imported": ImportedSection}


def check_settable(section: Any) -> None:
    """Refuse a key that no recipe sets, and say what does."""
    architecture = section.get("architecture") if isinstance(section, dict) else None
    if isinstance(architecture, str) and architecture in FAMILIES:
        for key, what in FAMILIES[architecture].set_by.items():
            if key in section:
                raise ValueError(f"model.{key} comes from {what}")


@dataclass(frozen=True, kw_only=True)
class NewModel:
    """What the sections of all families share; each has the fields of its family's config next to it."""

    architecture: str

    embeddings: Literal["random", "neighbors"] = "random"
    """How token embeddings start: random, or from counts of neighbouring tokens in the corpus. Counting takes seconds,
    which are part of train.minutes, and saves many steps. With rotary positions heads of the first block also start by
    looking at the neighbours, and heads of the second block at places with the same neighbours."""

    init = None
    old_domain = ()

    def __post_init__(self):
        self.encoder_config(vocab_size=1, pad_token_id=None)  # refuses a shape that no encoder can have

    def encoder_config(self, vocab_size: int, pad_token_id: int | None) -> EncoderConfig:
        family = FAMILIES[self.architecture]
        names = {field.name for field in dataclasses.fields(family.config)}.difference(family.set_by)
        shape = {name: getattr(self, name) for name in names}
        return family.config(**shape, vocab_size=vocab_size, pad_token_id=pad_token_id)


@dataclass(frozen=True, kw_only=True)
class ImportedSection:
    architecture: Literal["imported"]
    """imported, an existing model of any family, which model.init names."""

    init: str
    """The model to continue with, weights and tokenizer: a Hugging Face folder, an export, a run, or hf:NAME to
    download one."""

    old_domain: Annotated[list[str], MAY_CHANGE] = field(default_factory=list)
    """Text of the kind that the model was trained on before, if you have any: its loss is reported before and after."""

    embeddings = "given"

    def encoder_config(self, vocab_size: int, pad_token_id: int | None) -> EncoderConfig:
        raise ValueError(f"model.init={self.init} already has a shape; name an architecture for a new model")


@cache
def _section_of(name: str, family: Family) -> type:
    """The section of a family: its `architecture`, and every field of its config that a recipe may set."""
    config: type = family.config
    hints, notes = typing.get_type_hints(config, include_extras=True), help_of(config)
    about = " ".join((config.__doc__ or "").split())
    about = f"{name}, {about[:1].lower()}{about[1:]}"
    fields: list[Any] = [("architecture", Literal[name], field(metadata={"help": about}))]
    for each in dataclasses.fields(config):
        if each.name not in family.set_by:
            options: dict[str, Any] = {"default": each.default, "default_factory": each.default_factory}
            options["metadata"] = {"help": notes.get(each.name, "")}
            fields.append((each.name, hints[each.name], field(**options)))
    title = config.__name__.replace("Config", "Section")
    return dataclasses.make_dataclass(title, fields, bases=(NewModel,), frozen=True, kw_only=True)

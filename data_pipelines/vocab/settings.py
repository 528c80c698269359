"""The settings beside a tokenizer.json: read, and written again with all that is not used here."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Backend

from data_pipelines import durable

CONFIG, SPECIAL_MAP = "tokenizer_config.json", "special_tokens_map.json"
_INPUTS, _TYPES = "model_input_names", "token_type_ids"
# To transformers, the tokenizers of these families make no token types unless they are told to; all others do.
_WITHOUT_TYPES = ("Roberta", "XLMRoberta", "Camembert", "DistilBert")


class Settings(NamedTuple):
    """What a folder said of its tokenizer, as it said it; None where it had no such file."""

    config: dict[str, Any] | None = None
    special_map: dict[str, Any] | None = None
    padding: dict[str, Any] | None = None
    """What tokenizer.json itself says of padding and truncation, which are switched off here."""
    truncation: dict[str, Any] | None = None

    def values(self) -> dict[str, Any]:
        """All that is set; of the two files the newer one wins."""
        both = {**(self.special_map or {}), **(self.config or {})}
        return {key: value for key, value in both.items() if value is not None}


def read_settings(folder: Path) -> Settings:
    return Settings(_read(folder / CONFIG), _read(folder / SPECIAL_MAP))


def write_settings(
    settings: Settings, names: dict[str, str], folder: Path, token_types: bool | None, max_length: int | None
) -> None:
    """Write the folder's own settings again, or for a new tokenizer those that transformers needs. `names` are the
    special tokens by role; `token_types` says whether the model next to it has any (None: there is no model), and
    `max_length` how long its longest text is."""
    config, special_map = settings.config, settings.special_map
    if config is None or any(_is_new(config, names, types) for types in (False, True)):
        config, special_map = _new_config(names, bool(token_types)) | _length_of(config), names
    elif token_types is False:
        config = _without_token_types(config)
    if max_length is not None:
        config = {"model_max_length": max_length} | config
    for name, content in ((CONFIG, config), (SPECIAL_MAP, special_map)):
        if content is not None:
            durable.replace_file(folder / name, f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode())


def write_vocabulary(backend: Backend, folder: Path) -> None:
    """Write the vocab.txt that belongs to a WordPiece tokenizer: the token of each line has the line's number."""
    if type(backend.model).__name__ != "WordPiece":
        return
    spelled = {index: token for token, index in backend.get_vocab().items()}
    tokens = [spelled.get(index, "\n") for index in range(1 + max(backend.get_vocab(False).values()))]
    if not any(set(token) & {"\n", "\r"} for token in tokens):
        durable.replace_file(folder / "vocab.txt", "".join(f"{token}\n" for token in tokens).encode())


def _new_config(names: Mapping[str, str], token_types: bool) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        _INPUTS: ["input_ids", *([_TYPES] if token_types else []), "attention_mask"],
        **names,
    }


def _length_of(config: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (config or {}).items() if key == "model_max_length"}


def _is_new(config: Mapping[str, Any], names: Mapping[str, str], token_types: bool) -> bool:
    """Whether it says nothing but what a new tokenizer says; that depends on the model, which may be another now."""
    return config == _new_config(names, token_types) | _length_of(config)


def _without_token_types(config: dict[str, Any]) -> dict[str, Any]:
    """For a model that would not take them."""
    if _INPUTS not in config and not str(config.get("tokenizer_class")).startswith(_WITHOUT_TYPES):
        return config | {_INPUTS: ["input_ids", "attention_mask"]}
    if _TYPES in (config.get(_INPUTS) or ()):
        return config | {_INPUTS: [name for name in config[_INPUTS] if name != _TYPES]}
    return config


def _read(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    if not isinstance(read, dict):
        raise ValueError(f"{file} must hold an object, not {type(read).__name__}")
    return read

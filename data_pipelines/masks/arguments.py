"""The arguments of the collator, checked: an error names the argument as the caller does."""

import operator
import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from data_pipelines.bounds import Range, check_choice
from data_pipelines.masks.config import MaskConfig
from data_pipelines.vocab.vocabulary import Vocabulary, vocabulary_from_ids, vocabulary_of

_FIELDS = {"mlm_probability": "rate", "mask_replace_prob": "mask_share", "random_replace_prob": "random_share"}
"""What a MaskConfig calls the arguments that have transformers' names."""


def mask_config(mlm_probability: Any, **arguments: Any) -> MaskConfig:
    """The arguments as a config. It holds the rate where that is a number between 0 and 1: a recipe takes no other."""
    if isinstance(mlm_probability, bool):
        raise ValueError(
            f"mlm_probability must be a number, got {mlm_probability}; give mlm and whole_word_mask by name"
        )
    if not callable(mlm_probability):
        check_number("mlm_probability", mlm_probability, "[0, 1]")
        if 0 < mlm_probability < 1:
            arguments["mlm_probability"] = mlm_probability
    for name in ("mask_replace_prob", "random_replace_prob", "span_mean"):
        check_number(name, arguments[name])
    check_number("span_max", arguments["span_max"], kind=Integral)
    try:
        return MaskConfig(**{_FIELDS.get(name, name): value for name, value in arguments.items()})
    except ValueError as error:
        message = str(error)
        for name, field in _FIELDS.items():
            message = re.sub(rf"\b{field}\b", name, message)
        raise ValueError(message) from None


def unit_from(unit: str | None, mlm: bool, whole_word_mask: bool) -> str:
    """The masking unit that transformers' two switches and our argument name together."""
    if not mlm:
        raise ValueError("mlm=False is not masked-language modelling; to predict every token, use the inputs as labels")
    if whole_word_mask and unit not in (None, "word"):
        raise ValueError(f"whole_word_mask=True means unit='word', but unit={unit!r} was given too; leave one out")
    return "word" if whole_word_mask else unit or MaskConfig.unit


def check_tensors(return_tensors: str) -> None:
    check_choice("return_tensors", return_tensors, ("pt", "np"))
    if return_tensors == "pt" and "torch" not in sys.modules and find_spec("torch") is None:
        raise ValueError('return_tensors="pt" needs torch, which is not installed; give return_tensors="np"')


def seed_from(seed: Any) -> int:
    """The seed as it is, or a fresh one."""
    try:
        return int.from_bytes(os.urandom(8), "big") if seed is None else operator.index(seed)
    except TypeError:
        raise ValueError(f"seed must be an integer, or None for a fresh one, got {seed!r}") from None


def vocabulary_from(tokenizer: Any, mask_id, vocab_size, special_ids: Sequence[int], pad_id) -> Vocabulary:
    if tokenizer is not None:
        vocabulary = vocabulary_of(tokenizer, special_ids)
        known = {"mask_id": mask_id, "vocab_size": vocab_size}
        if vocabulary.pad_id is not None:
            known["pad_id"] = pad_id
        if told_twice := [key for key, given in known.items() if given is not None]:
            raise ValueError(f"the tokenizer already defines {', '.join(told_twice)}; leave that out, or the tokenizer")
        if pad_id is None:
            return vocabulary
        check_number("pad_id", pad_id, f"[0, {len(vocabulary.maskable_V)})", Integral)
        return vocabulary._replace(pad_id=pad_id)
    if mask_id is None or vocab_size is None:
        raise ValueError("give a tokenizer, or at least mask_id and vocab_size (and special_ids, pad_id)")
    check_number("vocab_size", vocab_size, "[1, inf)", Integral)
    check_number("mask_id", mask_id, f"[0, {vocab_size})", Integral)
    check_number("pad_id", 0 if pad_id is None else pad_id, f"[0, {vocab_size})", Integral)
    return vocabulary_from_ids(mask_id, vocab_size, special_ids, pad_id)


def check_number(name: str, value: Any, interval: str | None = None, kind: type = Real) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {'an integer' if kind is Integral else 'a number'}, got {value!r}")
    if interval and (problem := Range(interval).problem(value)):
        raise ValueError(f"{name} {problem}")


def how_to_open(name: str | Path) -> str:
    opened = f"tokenizer must be a tokenizer, not its name: data_pipelines.load_tokenizer({str(name)!r}) opens "
    if Path(name).exists():
        return opened + "this one"
    return opened + f"a folder or file, tokenizers.Tokenizer.from_pretrained({str(name)!r}) one of the Hugging Face hub"

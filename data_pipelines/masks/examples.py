"""Examples of any form to flat rows, masks, keys and further columns; a wrong example is named."""

import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from data_pipelines.rows.batch import RowBatch, naturals
from data_pipelines.vocab.words import starts_from_word_ids

# T tokens in the batch, R rows (one an example)


class Examples(NamedTuple):
    """A batch of examples as arrays."""

    rows: RowBatch
    protected_T: np.ndarray | None
    """bool: tokens that must not be chosen, where an example says so."""
    attended_T: np.ndarray | None
    tokenizer_words: bool
    """Whether the words are those of the tokenizer, to which a run of Chinese is one word."""
    row_ids: np.ndarray | None
    epochs: np.ndarray | int | None
    """One number where all examples have the same."""
    step: int | None
    columns: dict[str, list]
    """Every other field, as given."""


def read_examples(examples: Sequence[Any], *, with_words: bool) -> Examples:
    """Read a batch; `with_words` asks fast encodings for their words where the examples carry none."""
    columns, tokenizer_words = _columns(examples, with_words)
    columns.pop("offset_mapping", None)
    ids = _without_tensors(columns.pop("input_ids"))
    try:
        row_starts = naturals([list(accumulate(map(len, ids), initial=0))])
    except TypeError:
        place, row = next((place, row) for place, row in enumerate(ids) if not hasattr(row, "__len__"))
        raise ValueError(f"input_ids of example {place} must be a list, an array or a tensor, got {row!r}") from None

    def flags(name: str) -> np.ndarray | None:
        rows = columns.pop(name, None)
        if rows is None:
            return None
        rows = _without_tensors(rows)
        _check_lengths(name, rows, ids)
        return _integers(name, rows).astype(bool)

    def shared(name: str) -> np.ndarray | int | None:
        values = columns.pop(name, None)
        if values is None:
            return None
        if type(values[0]) is int and values.count(values[0]) == len(values):
            return values[0]
        return one_if_equal(_one_integer_each(name, values))

    starts_word_T, word_ids = flags("starts_word"), columns.pop("word_ids", None)
    if starts_word_T is None and word_ids is not None:
        _check_lengths("word_ids", word_ids, ids)
        starts_word_T = np.concatenate([starts_from_word_ids(row) for row in word_ids])
    protected_T, attended_T = flags("special_tokens_mask"), flags("attention_mask")
    if attended_T is not None:
        protected_T = ~attended_T if protected_T is None else protected_T | ~attended_T
    row_ids, step = columns.pop("row_id", None), shared("step")
    if isinstance(step, np.ndarray):
        raise ValueError(f"a batch belongs to one step, got examples of steps {', '.join(map(str, np.unique(step)))}")
    return Examples(
        rows=RowBatch(_integers("input_ids", ids), row_starts, row_starts, starts_word_T),
        protected_T=protected_T,
        attended_T=attended_T,
        tokenizer_words=tokenizer_words,
        row_ids=None if row_ids is None else _one_integer_each("row_id", row_ids),
        epochs=shared("epoch"),
        step=step,
        columns=columns,
    )


def one_if_equal(numbers: np.ndarray) -> np.ndarray | int:
    """A single number where all are equal, which is faster to compute with."""
    return int(numbers[0]) if len(numbers) and (numbers == numbers[0]).all() else numbers


def along_tokens(values: list, lengths: np.ndarray) -> np.ndarray | None:
    """A field with one number per token as a flat array of its own type; None for any other field."""
    arrays = list(map(_numbers, values))
    if any(array.shape != (length,) for array, length in zip(arrays, lengths.tolist(), strict=True)):
        return None
    # An empty list has no type of its own.
    return np.concatenate([array for array in arrays if len(array)] or arrays)


def stacked(values: list) -> np.ndarray | list:
    """A field with numbers of one shape in every example as an array; anything else stays a list."""
    arrays = list(map(_numbers, values))
    if any(array.dtype == object or array.shape != arrays[0].shape for array in arrays):
        return values
    return np.stack(arrays)


def _columns(examples: Sequence[Any], with_words: bool) -> tuple[dict[str, list], bool]:
    """Examples as named columns, and whether their words come from the tokenizer."""
    if hasattr(examples, "keys"):
        raise ValueError(
            "a batch in columns was given to the masking collator; give a list of examples, such as "
            "[dataset[i] for i in range(4)] or [tokenizer(text) for text in texts]"
        )
    try:
        if not len(examples):
            raise ValueError("an empty batch was given to the masking collator")
        first = examples[0]
    except TypeError:  # a generator, a set, a single number
        raise ValueError(f"a batch is a list of examples, got {type(examples).__name__}; give a list of them") from None
    if hasattr(first, "ids") and hasattr(first, "special_tokens_mask"):  # tokenizers.Encoding
        fields = {"input_ids": "ids", "special_tokens_mask": "special_tokens_mask", "attention_mask": "attention_mask"}
        if with_words:
            fields["word_ids"] = "word_ids"
        try:
            columns = {name: [getattr(example, field) for example in examples] for name, field in fields.items()}
        except AttributeError:
            raise _differing(examples) from None
        return columns, with_words
    if not hasattr(first, "keys"):  # transformers' BatchEncoding has keys without being a Mapping
        if not hasattr(first, "__len__") or np.ndim(first) == 0:
            raise ValueError(
                f"a batch is a list of examples, got a list of {type(first).__name__}: give [ids], not ids"
            )
        return {"input_ids": list(examples)}, False
    names = first.keys()
    if "input_ids" not in names:
        raise ValueError(f"an example needs input_ids, got {', '.join(names)}")
    try:
        if sum(map(len, examples)) != len(names) * len(examples):  # a missing name raises KeyError below
            raise _differing(examples)
        columns = {name: [example[name] for example in examples] for name in names}
    except (KeyError, TypeError):
        raise _differing(examples) from None
    if with_words and "word_ids" not in names and "starts_word" not in names and getattr(first, "is_fast", False):
        return columns | {"word_ids": [example.word_ids() for example in examples]}, True
    return columns, False


def _without_tensors(rows: list) -> list:
    """Tensors as arrays, whose length is found much faster. Only where the first row is a tensor."""
    return [row.numpy() if hasattr(row, "numpy") else row for row in rows] if hasattr(rows[0], "numpy") else rows


def _differing(examples: Sequence[Any]) -> ValueError:
    kinds = list(map(_kind, examples))
    if len(set(kinds)) > 1:
        place = next(place for place, kind in enumerate(kinds) if kind != kinds[0])
        return ValueError(
            f"the examples of a batch differ: example 0 is {kinds[0]} and example {place} is {kinds[place]}; "
            "give all in one form"
        )
    names = set(examples[0].keys())
    place, differing = next(
        (place, names ^ set(example.keys())) for place, example in enumerate(examples) if names != set(example.keys())
    )
    return ValueError(
        f"the examples of a batch differ: example {place} and example 0 do not share {', '.join(sorted(differing))}"
    )


def _kind(example: Any) -> str:
    if hasattr(example, "keys"):
        return "a mapping"
    if hasattr(example, "ids"):
        return "an Encoding"
    return "a row of ids" if hasattr(example, "__len__") else f"of type {type(example).__name__}"


def _integers(name: str, rows: list) -> np.ndarray:
    """One int64 array from rows of lists and arrays of numbers from 0 on."""
    if type(rows[0]) is list:
        try:
            joined = naturals(rows)
            if np.minimum.reduce(joined, initial=0) == 0:
                return joined
            largest = max(max(row) for row in rows if row)
            raise ValueError(f"{name} must hold integers of 64 bits, with a sign, got {largest}")
        except (TypeError, OverflowError):
            pass  # not a list, a negative number, or no number: found out below
    try:
        joined = np.concatenate(rows)
        if joined.dtype.kind == "f":  # empty rows have a float type
            joined = np.concatenate([row for row in rows if len(row)] or [np.empty(0, np.int64)])
        if joined.ndim == 1 and joined.dtype.kind in "iub":
            joined = joined.astype(np.int64, copy=False)
            if np.minimum.reduce(joined, initial=0) == 0:
                return joined
    except (TypeError, ValueError, OverflowError):
        pass  # the errors below say what is wrong
    for place, row in enumerate(rows):
        if _kind(row) != "a row of ids":
            raise ValueError(f"{name} of example {place} is {_kind(row)}; give all examples in one form")
        shape, dtype = _numbers(row).shape, _numbers(row).dtype
        if len(shape) > 1:
            raise ValueError(
                f"{name} of example {place} has shape {shape}; give one-dimensional rows, as a tokenizer does for one "
                "text without return_tensors"
            )
        if len(row) and dtype.kind not in "iub":
            raise ValueError(f"{name} of example {place} must hold integers, got {dtype}s such as {row[0]!r}")
        if len(row) and min(row) < 0:
            raise ValueError(f"{name} of example {place} must hold numbers from 0 on, got {min(row)}")
    raise ValueError(f"{name} must hold integers of 64 bits")


def _one_integer_each(name: str, values: list) -> np.ndarray:
    try:
        return naturals([values])
    except (TypeError, OverflowError):
        pass  # a negative number, or of another type than int
    try:
        return np.fromiter(map(operator.index, values), np.int64, len(values))
    except (TypeError, OverflowError):
        raise ValueError(f"{name} must be an integer of 64 bits in every example, got {values[0]!r} first") from None


def _check_lengths(name: str, rows: list, ids: list) -> None:
    try:
        got, wanted = list(map(len, rows)), list(map(len, ids))
    except TypeError:
        raise ValueError(f"{name} must be as long as input_ids in every example, got {rows[0]!r} first") from None
    if got != wanted:
        place = next(place for place in range(len(got)) if got[place] != wanted[place])
        raise ValueError(
            f"{name} of example {place} must be as long as its input_ids, {wanted[place]}, got {got[place]} values"
        )


def _numbers(value: Any) -> np.ndarray:
    """The value as an array of numbers; an array of one object where it holds none."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.array(None)
    return array if array.dtype.kind in "biuf" else np.array(None)

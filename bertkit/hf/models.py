"""Loads and saves models in Hugging Face folders, without transformers.

Our own folders have the same layout: config.json, model.safetensors and the tokenizer's files.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.hf.files import Weights, open_weights, replacing, save_weights
from bertkit.hf.folder import check_vocabulary, resolve
from bertkit.hf.layout import Layout, Shapes, read_layout, write_layout
from bertkit.hf.names import Weight, weight_table
from bertkit.model.encoder import Encoder
from bertkit.model.heads import HEADS, ModelWithHead
from bertkit.model.initialization import fill, give_values, outline_encoder

Model = Encoder | ModelWithHead


def load(folder: str | Path) -> Model:
    """The model a folder holds (bare encoder, `MaskedLM`, `TokenTagger`, `SequenceClassifier`), in float32, for use.

    Every name and shape is checked against config.json before memory is taken for weights.
    """
    return fill(open_model(folder)).eval()


def open_model(folder: str | Path) -> Model:
    """The model that `load` gives, as an outline: each weight is read from its file when it is asked for."""
    path = resolve(folder)
    # Open for as long as a weight can be asked for.
    weights = open_weights(path)
    layout, model = checked_outline(path, weights.shapes)
    weights.verify()
    _check_copies(layout, weights, path)
    ours = model.state_dict(keep_vars=True)
    for row in weight_table(layout, ours):
        give_values(ours[row.ours], partial(row.read, weights))
    return model


def load_with_head(folder: str | Path, *kinds: str, remedy: str = "") -> Any:
    """The model of a folder, which must have a head of one of these kinds."""
    path = resolve(folder)
    model = load(path)
    check_head(model, path, *kinds, remedy=remedy)
    return model


def check_head(model: Model, folder: str | Path, *kinds: str, remedy: str = "") -> None:
    """Refuse a model whose head is of another kind; "bare" means an encoder without one."""
    if model.kind not in kinds:
        needed = " or ".join("an encoder without a head" if k == "bare" else f"a {HEADS[k].__name__}" for k in kinds)
        raise ValueError(
            f"{folder} holds a {type(model).__name__}, but {needed} is needed" + (f"; {remedy}" if remedy else "")
        )


def load_outline(folder: str | Path) -> Model:
    """The model that `load` would give, with every name and shape checked, but without memory for its weights."""
    path = resolve(folder)
    with open_weights(path) as weights:
        return checked_outline(path, weights.shapes)[1]


def left_out(folder: str | Path, model: Model) -> list[str]:
    """The modules of a folder whose weights the model that `load` gave does not hold, as they are of other tasks."""
    path = resolve(folder)
    with open_weights(path) as weights:
        layout = read_layout(path, weights.shapes)
        used = {name for row in weight_table(layout, model.state_dict()) for name in row.theirs}
        unused = weights.shapes.keys() - used
    return sorted({name.rpartition(".")[0] for name in unused if layout.is_of_other_tasks(name)})


def save(model: Model, folder: str | Path, tokenizer: Any = None, *, gathered: Iterator[Tensor] | None = None) -> None:
    """Write the folder that `load` and transformers' Auto classes open. A model that is there already is replaced as a
    whole: a folder with weights is complete and holds one model. `tokenizer` is one that
    `load_tokenizer` opens; without one, a tokenizer that is there stays. Of a model whose weights ranks share,
    `gathered` gives all of each tensor of `stored_weights` in turn; one is in memory at a time."""
    path = Path(folder)
    if tokenizer is not None:
        check_vocabulary(tokenizer, model.config.vocab_size, path)
    table, ours = _stored(model), stored_weights(model)
    outlines = {
        name: row.write(name, torch.empty(ours[name].shape, dtype=ours[name].dtype, device="meta"))
        for name, row in table.items()
    }

    def value_of(name: str) -> Tensor:
        return table[name].write(name, ours[name] if gathered is None else next(gathered))

    with replacing(path) as unfinished:
        save_around(model, unfinished, tokenizer)
        save_weights(outlines, value_of, unfinished)


def save_around(model: Model, folder: Path, tokenizer: Any) -> None:
    """Write all of a model folder but the weights: config.json, and the tokenizer as this model needs it."""
    layout = layout_of(model)
    if tokenizer is not None:
        config = layout.config
        tokenizer.save(folder, token_types=config.has_token_types, max_length=config.max_position_embeddings)
    write_layout(layout, folder, getattr(tokenizer, "special", None))


def exported_weights(model: Model) -> dict[str, Tensor]:
    """A model's weights by the names that transformers gives them."""
    ours = stored_weights(model)
    return {name: row.write(name, ours[name]) for name, row in _stored(model).items()}


def stored_weights(model: Model) -> dict[str, Tensor]:
    """Our tensors by the names that transformers gives them, in the order in which they are written. A tensor that has
    several names there is listed under each."""
    state = model.state_dict()
    return {name: state[row.ours] for name, row in _stored(model).items()}


def _stored(model: Model) -> dict[str, Weight]:
    rows = {name: row for row in weight_table(layout_of(model), model.state_dict()) for name in row.written}
    return dict(sorted(rows.items()))


def check_exportable(model: Model) -> None:
    """Refuse a model that has a weight without a name at Hugging Face, before time goes into its training."""
    weight_table(layout_of(model), model.state_dict())


def checked_outline(path: Path, shapes: Shapes) -> tuple[Layout, Model]:
    """What config.json asks for, without memory for weights, once the weights' names and shapes agree with it."""
    layout = read_layout(path, shapes)
    model = outline(layout, path)
    _check(weight_table(layout, model.state_dict()), model, shapes, layout, path)
    return layout, model


def outline(layout: Layout, path: Path) -> Model:
    """The modules of a folder's layout, without memory for their weights."""
    try:
        encoder = outline_encoder(layout.config, pooler=layout.pooler)
        if layout.head == "bare":
            return encoder
        head = HEADS[layout.head]
        return head(encoder, layout.labels) if head.takes_labels else head(encoder)
    except (RuntimeError, OverflowError, TypeError):  # torch counts bytes in 64 bits
        raise ValueError(f"{path}: config.json describes a model too large for any memory") from None


def layout_of(model: nn.Module) -> Layout:
    if not isinstance(model, (Encoder, ModelWithHead)):
        raise ValueError(
            f"only an encoder or a model with a head can be saved, got {type(model).__name__}; "
            "take the model out of its wrapper first"
        )
    return Layout(
        config=model.config,
        head=model.kind,
        labels=model.labels,
        pooler=model.encoder.pooler is not None,
        prefixed=model.kind != "bare",
    )


def _check(table: list[Weight], model: Model, shapes: Shapes, layout: Layout, path: Path) -> None:
    """Every weight is there, has the shape that config.json says, and is of use."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for row in table:
        for name, shape in row.shapes(expected[row.ours]).items():
            if name not in shapes:
                raise ValueError(f"{path}: weight {name!r} is missing, but config.json needs it")
            if shapes[name] != shape:
                raise ValueError(f"{path}: weight {name!r} has shape {shapes[name]}, but config.json needs {shape}")
    used = {name for row in table for name in row.theirs}
    for name in sorted(set(shapes) - used):
        if not layout.ignores(name):
            raise ValueError(f"{path}: weight {name!r} has no place in a {layout.architecture}")


def _check_copies(layout: Layout, weights: Weights, path: Path) -> None:
    """What tied weights have twice must be the same twice: reading one of two that differ would be a guess."""
    for name, copy in layout.copies:
        if name in weights.shapes and copy in weights.shapes and not torch.equal(weights[name], weights[copy]):
            raise ValueError(
                f"{path}: config.json ties the head to the embeddings, but {copy!r} differs from {name!r}; "
                "set tie_word_embeddings to false if the file holds its own head"
            )

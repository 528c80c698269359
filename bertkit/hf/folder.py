"""Finds the folder of the model that a user names; the network is used for hf: names and URLs only."""

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

from data_pipelines.places import cache_folder
from data_pipelines.text.stores import is_url

HUB_PREFIX = "hf:"
EXPORT = "export"
"""Where a training run puts the model it made."""
# What a model folder needs; code and pickles are never fetched.
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FULL, QUANTIZED = "onnx/model.onnx", "onnx/model_quantized.onnx"
"""Where a folder holds its graph in float32, and in int8."""
PRODUCER = "bertkit"
"""Who a graph says that it was made by."""
GRAPHS = ("onnx", "int8")
BACKENDS = ("auto", "torch", "bf16", *GRAPHS)
"""What can compute a model, of what its folder has; bf16 is torch, too, with its large matrix products in bf16."""
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_BESIDE = (".json", ".txt", ".model", ".md", ".jinja")
"""Files next to the weights: settings, tokenizers, the model card, templates."""
_WANTED = ["*.safetensors", *(f"*{suffix}" for suffix in _BESIDE)]


def resolve(folder: str | Path) -> Path:
    """A local folder as it is, or of a training run the model it wrote; `hf:NAME` and URLs are downloaded. A name that
    is no folder says what would work."""
    name = str(folder)
    if name.startswith(HUB_PREFIX):
        return _download(name.removeprefix(HUB_PREFIX))
    path = _fetch(name) if is_url(name) else Path(folder)
    if path.is_dir():
        if (path / "config.json").exists():
            return path
        if not (path / EXPORT).is_dir() and (path / "recipe.yaml").exists():
            raise ValueError(f"{path} is a run that has no model yet; run its command again until it finishes")
        return path / EXPORT if (path / EXPORT).is_dir() else path
    if path.is_file():
        if path.suffix in _PICKLES:
            raise ValueError(f"{path} is a pickle, which runs code when opened; {CONVERT}")
        raise ValueError(f"{path} is a file; name the folder with config.json and model.safetensors")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise ValueError(f"there is no folder {name!r}")
    raise ValueError(
        f"there is no folder {name!r}; for a model on the Hugging Face hub run "
        f"`hf download {name} --local-dir DIR` where there is a network and name DIR, or write {HUB_PREFIX}{name}"
    )


def check_named(folder: str | Path, graph: bool = False) -> None:
    """Refuse what `resolve` would refuse, and a folder without weights, or an ONNX `graph` where one will do, without
    the network; a verb asks before it imports anything heavy."""
    if not is_remote(folder):
        path = resolve(folder)
        if not (graph and has_graph(path)):
            check_weights(path)


def is_remote(folder: str | Path) -> bool:
    """Whether `resolve` would download it."""
    return str(folder).startswith(HUB_PREFIX) or is_url(str(folder))


def choose_backend(folder: Path, backend: str = "auto", device: str = "cpu") -> str:
    """What computes the model of a folder. "auto" takes what answers soonest with the tags of torch: on a CPU the graph
    in float32, if bertkit wrote it; else torch. int8 and bf16 may give other tags, so they must be asked for."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend != "auto":
        return backend
    if not has_weights(folder):
        return "onnx" if has_graph(folder) else "torch"
    has_runtime = importlib.util.find_spec("onnxruntime") is not None
    return "onnx" if device == "cpu" and has_runtime and _is_ours(folder / FULL) else "torch"


def _is_ours(graph: Path) -> bool:
    """Whether bertkit wrote it, by its first bytes."""
    if not graph.is_file():
        return False
    with graph.open("rb") as file:
        return PRODUCER.encode() in file.read(32)


def has_graph(folder: Path) -> bool:
    """Whether onnxruntime can compute the model."""
    return (folder / FULL).is_file() or (folder / QUANTIZED).is_file()


def has_weights(folder: Path) -> bool:
    return (folder / SINGLE).is_file() or (folder / INDEX).is_file()


def check_weights(folder: Path) -> None:
    """Refuse a folder that holds no weights that can be opened."""
    if has_weights(folder):
        return
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
    if pickles:
        raise ValueError(f"{folder} holds {pickles[0]}, a pickle, which runs code when opened; {CONVERT}")
    if has_graph(folder):
        raise ValueError(f"{folder} holds an ONNX graph but no {SINGLE}; name the folder that it was exported from")
    raise ValueError(f"{folder} holds no {SINGLE}")


def carry_along(source: Path, folder: Path) -> None:
    """Copy the other files of a model folder that were not written again: its card, other forms of the
    tokenizer, settings for other programs. Weights, code and pickles are not copied, but for the parts of
    sentence-transformers, which modules.json names."""
    files = [path for path in source.iterdir() if path.suffix in _BESIDE and not path.name.endswith(".index.json")]
    for part in _parts(source / "modules.json"):
        files += [path for path in part.iterdir() if path.suffix in (*_BESIDE, ".safetensors")]
    for path in files:
        place = folder / path.relative_to(source)
        if path.is_file() and not place.exists():
            place.parent.mkdir(exist_ok=True)
            shutil.copy(path, place)


def _parts(modules: Path) -> list[Path]:
    """The folders next to modules.json that it names; none where it is not what sentence-transformers writes."""
    try:
        names = [str(module["path"]) for module in json.loads(modules.read_text(encoding="utf-8"))]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [
        modules.parent / name for name in names if re.fullmatch(r"\w[\w.-]*", name) and (modules.parent / name).is_dir()
    ]


def check_vocabulary(tokenizer: Any, vocab_size: int, folder: str | Path) -> None:
    """Refuse a tokenizer that has more tokens than its model knows."""
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, but the model knows {vocab_size}; "
            "use the tokenizer that the model was trained with"
        )


CONVERT = (
    "in an environment you trust, load it with transformers and call model.save_pretrained(DIR), "
    "which writes model.safetensors; then name DIR"
)


def _fetch(url: str) -> Path:
    """The files of a URL; of a copy of a run those of the model alone."""
    from data_pipelines.text.transfer import HASHES, fetch_folder, is_stored

    url = url.rstrip("/")
    export = f"{url}/{EXPORT}"
    url = export if is_stored(f"{export}/{HASHES}") else url
    return fetch_folder(url, cache_folder() / "models", without=(*_PICKLES, ".py"))


def _download(name: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    from data_pipelines.text.hub import end_silence

    end_silence()
    try:
        HfApi().repo_info(name, timeout=5)
    except Exception as error:
        try:
            return Path(snapshot_download(name, allow_patterns=_WANTED, local_files_only=True))
        except Exception:  # nothing was downloaded before either
            raise _unreachable(name, error) from None
    try:
        return Path(snapshot_download(name, allow_patterns=_WANTED, etag_timeout=5))
    except Exception as error:  # the hub's errors have no common type: network, HTTP, cache, validation
        raise _unreachable(name, error) from None


def _unreachable(name: str, error: Exception) -> ValueError:
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return ValueError(
        f"{HUB_PREFIX}{name} could not be downloaded ({reason}); run `hf download {name} --local-dir DIR` "
        "where there is a network and name DIR instead"
    )

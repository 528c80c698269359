"""The verbs `fill`, `import`, `export` and `info`, which all take a model folder."""

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.cli.answers import add_json, answer, json_lines
from bertkit.hf.folder import BACKENDS, GRAPHS, carry_along, check_named, choose_backend, resolve
from bertkit.hf.model_types import MODEL_TYPES
from bertkit.run.lock import one_writer
from bertkit.terminal import printable
from data_pipelines.text.stores import folder_or_url

if TYPE_CHECKING:
    from bertkit.evaluate.fill import Filled
    from bertkit.hf.info import Info

Run = Callable[[Namespace], int | None]
MODEL = "folder of a model or of a run, or hf:NAME or a URL (s3://, ...) to download one"


def fill(parser: ArgumentParser) -> Run:
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="*",
        help="text with [MASK] for one missing token or [SPAN] for several; standard input if none",
    )
    parser.add_argument("--model", required=True, metavar="DIR", help=MODEL)
    parser.add_argument("--top-k", type=int, default=5, metavar="N", help="candidates for each mask (default: 5)")
    parser.add_argument(
        "--order",
        default="left-to-right",
        choices=("left-to-right", "easiest-first", "together"),
        help="which of several masks is filled first, or together in --passes (default: left-to-right)",
    )
    parser.add_argument("--passes", type=int, metavar="N", help="passes of --order together (default: 4)")
    parser.add_argument("--max-span", type=int, default=4, metavar="N", help="most tokens of a [SPAN] (default: 4)")
    add_backend(parser)
    add_json(parser, "one JSON object per line, one for each text,")
    return _fill


def add_backend(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="auto",
        help="backend, if the folder has it (default: auto, in float32); bf16 is torch with products in bf16, faster "
        "on GPUs and on CPUs with AVX512-BF16 or AMX",
    )


def import_folder(parser: ArgumentParser) -> Run:
    about = f"Hugging Face folder ({', '.join(MODEL_TYPES)}), or hf:NAME to download one"
    parser.add_argument("source", metavar="SOURCE", help=about)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="new folder to write")
    return _copy


def export(parser: ArgumentParser) -> Run:
    parser.add_argument("source", metavar="SOURCE", help=MODEL)
    parser.add_argument("folder", metavar="FOLDER", type=folder_or_url, help="new folder to write, or URL (s3://, ...)")
    parser.add_argument(
        "--format",
        default="transformers",
        choices=("transformers", "onnx", "html"),
        help="format: transformers (default), onnx (needs no torch), or html (one page for a browser)",
    )
    parser.add_argument(
        "--int8", action="store_true", help="also write onnx/model_quantized.onnx, if it passes --check"
    )
    parser.add_argument(
        "--check", metavar="FILE", help="labeled file that the model has not seen, or text, to measure int8 by"
    )
    parser.add_argument(
        "--max-loss",
        type=float,
        default=0.3,
        metavar="X",
        help="largest loss of int8 on that file, in points (default: 0.3)",
    )
    return _export


def info(parser: ArgumentParser) -> Run:
    parser.add_argument("folder", metavar="MODEL", help=MODEL)
    parser.add_argument("--seq-len", type=int, metavar="N", help="sequence length for which to count operations")
    add_json(parser)
    return _info


# `import` is a verb to users and a keyword to Python.
globals()["import"] = import_folder


def only_for(model: str, backend: str = "torch") -> Path:
    """The folder of a model, once this process, which is there for it alone, computes fast on a CPU."""
    path = resolve(model)
    if choose_backend(path, backend) not in GRAPHS:
        from bertkit.cpu import flush_denormals

        flush_denormals()
    else:
        from bertkit.hf.onnx import OnnxModel

        OnnxModel.flushes_denormals = True
    return path


def _fill(arguments: Namespace) -> int:
    if arguments.passes is None:
        arguments.passes = 4
    elif arguments.order != "together":
        raise ValueError(f"--passes {arguments.passes} belongs to --order together; other orders fill mask by mask")
    for name in ("top_k", "passes", "max_span"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(arguments, name)}")
    check_named(arguments.model, graph=True)

    from bertkit.evaluate.fill import FillMask

    fill_mask = FillMask.load(only_for(arguments.model, arguments.backend), arguments.backend)
    status = 0
    with json_lines(arguments.json) as answer_line:
        for number, line in _numbered(arguments.text):
            try:
                text = line.decode("utf-8") if isinstance(line, bytes) else line
                filled = fill_mask(text, arguments.top_k, arguments.order, arguments.passes, arguments.max_span)
            except ValueError as error:
                if number is None:
                    raise
                # One bad line of many does not stop the rest.
                print(f"bertkit: standard input, line {number}: {printable(str(error), lines=True)}", file=sys.stderr)
                status = 2
                continue
            masks = [[candidate._asdict() for candidate in candidates] for candidates in filled.masks]
            answer_line({"text": text, "filled": filled.text, "masks": masks}, partial(_show_filled, filled))
    return status


def _show_filled(filled: "Filled") -> None:
    print(printable(filled.text, lines=True))
    for number, candidates in enumerate(filled.masks, start=1):
        if len(filled.masks) > 1:
            print(f"  mask {number}")
        for candidate in candidates:
            print(f"  {candidate.probability:7.2%}  {printable(candidate.token)}")
    # Whoever sends lines through a pipe may wait for each answer.
    sys.stdout.flush()


def _numbered(texts: list[str]) -> Iterator[tuple[int | None, str | bytes]]:
    """The texts given, or the lines of standard input with their numbers."""
    yield from ((None, text) for text in texts)
    if not texts:
        for number, line in enumerate(sys.stdin.buffer, start=1):
            if line.strip():
                yield number, line.rstrip(b"\r\n")


def _check_places(source: str, folder: Path | str) -> None:
    check_named(source)
    if isinstance(folder, str):
        from data_pipelines.text.transfer import check_writable, stored_files

        check_writable(folder)
        if stored_files(folder):
            raise ValueError(f"{folder} is not empty; choose a new folder")
        return
    if folder.is_file():
        raise ValueError(f"{folder} is a file; choose a new folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty; choose a new folder")


def _export(arguments: Namespace) -> None:
    if arguments.int8 and arguments.format == "transformers":
        raise ValueError("--int8 needs --format onnx or html")
    if arguments.int8 != (arguments.check is not None):
        raise ValueError("--int8 and --check FILE need each other: the loss of accuracy must be measured")
    if not 0 <= arguments.max_loss < 100:
        raise ValueError(f"--max-loss must be in [0, 100), got {arguments.max_loss}")
    if arguments.check is not None and not Path(arguments.check).is_file():
        raise ValueError(f"--check: there is no file {arguments.check!r}")
    if arguments.format == "transformers":
        _copy(arguments)
        return
    _check_places(arguments.source, arguments.folder)

    from bertkit.ship.export import export_onnx, export_page
    from bertkit.ship.gate import Gate

    gate = Gate(arguments.check, arguments.max_loss) if arguments.int8 else None
    write, what = (export_onnx, "an ONNX graph") if arguments.format == "onnx" else (export_page, "a page")
    with _written_to(arguments.folder) as folder:
        model = write(arguments.source, folder, gate)
    print(f"{type(model).__name__} as {what} → {arguments.folder}")


@contextmanager
def _written_to(folder: Path | str) -> Iterator[Path]:
    """A folder to write, which no other command writes meanwhile; that of a URL is copied there at the end."""
    if isinstance(folder, Path):
        with one_writer(folder):
            yield folder
        return

    from data_pipelines.text.transfer import put_model

    with tempfile.TemporaryDirectory() as scratch:
        yield Path(scratch) / "model"
        put_model(Path(scratch) / "model", folder)


def _copy(arguments: Namespace) -> None:
    _check_places(arguments.source, arguments.folder)

    from bertkit.hf.models import left_out, load, save
    from data_pipelines import durable
    from data_pipelines.vocab.tokenizer import load_tokenizer
    from data_pipelines.vocab.tokenizer_file import has_tokenizer

    source = resolve(arguments.source)
    model = load(source)
    tokenizer = load_tokenizer(source) if has_tokenizer(source) else None
    with _written_to(arguments.folder) as folder, durable.replacing_folder(folder) as unfinished:
        save(model, unfinished, tokenizer)
        carry_along(source, unfinished)
    kind = type(model).__name__ + ("" if tokenizer else " (no tokenizer there)")
    print(f"{kind} with {sum(p.numel() for p in model.parameters()):,} weights → {arguments.folder}")
    if left := left_out(source, model):
        print(f"left out, because no task uses them: {', '.join(left)}")


def _info(arguments: Namespace) -> None:
    if arguments.seq_len is not None and arguments.seq_len < 1:
        raise ValueError(f"--seq-len must be at least 1, got {arguments.seq_len}")
    check_named(arguments.folder, graph=True)

    from dataclasses import asdict

    from bertkit.hf.info import describe

    found = describe(arguments.folder, arguments.seq_len)
    facts = asdict(found) | {"num_parameters": found.num_parameters, "memory": found.memory}
    answer(arguments.json, facts, lambda: _show_info(found))


def _show_info(found: "Info") -> None:
    config = found.config
    print(
        f"{found.architecture}: {config.num_hidden_layers} layers, width {config.hidden_size}, "
        f"{config.num_attention_heads} heads, {config.vocab_size:,} tokens, "
        f"up to {config.max_position_embeddings:,} positions"
    )
    rows = [(f"  {part}", f"{count:,}") for part, count in found.parameters.items()]
    rows = [("parameters", f"{found.num_parameters:,}"), *rows]
    rows += [(f"memory, {what}", f"{size / 2**20:,.1f} MiB") for what, size in found.memory.items()]
    rows += [(f"FLOPs per token, forward, length {found.seq_len}", f"{found.flops_per_token:,}")]
    rows += [(f"FLOPs per token, training, length {found.seq_len}", f"{3 * found.flops_per_token:,}")]
    if found.labels:
        rows.append((f"labels ({len(found.labels)})", printable(" ".join(found.labels))))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")

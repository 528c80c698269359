"""What the model in a folder knows of a corpus: scores on masked tokens, and pseudo-perplexity."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertkit.evaluate.config import EvaluateConfig
from bertkit.evaluate.held_out import HeldOut
from bertkit.evaluate.pseudo_perplexity import pseudo_perplexity
from bertkit.hf.folder import GRAPHS, check_vocabulary, choose_backend, resolve
from bertkit.hf.onnx import open_graph
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents
from data_pipelines.vocab.tokenizer import load_tokenizer

_READING = ("documents", "field", "encoding", "errors")


def evaluate_folder(
    model_folder: str | Path, corpus: list[str], config: EvaluateConfig, backend: str = "auto"
) -> dict[str, Any]:
    """Loss, perplexity and accuracy on masked tokens, by bucket too, and pseudo-perplexity per word and byte."""
    folder = resolve(model_folder)
    model, target_logits, device = open_masked_lm(folder, choose_backend(folder, backend))
    tokenizer = load_tokenizer(folder)
    check_vocabulary(tokenizer, model.config.vocab_size, folder)
    seq_len = min(config.seq_len, model.config.max_position_embeddings)
    sources = CorpusConfig(corpus=corpus, **{name: getattr(config, name) for name in _READING})
    with tempfile.TemporaryDirectory() as scratch:
        prepare(sources, folder, PrepareConfig(seq_len=seq_len, validation_share=0.0), Path(scratch) / "rows")
        rows = open_rows(Path(scratch) / "rows", "train")
        if not len(rows):
            raise ValueError(f"the corpus {', '.join(corpus)} holds no text")
        held_out = HeldOut(
            rows,
            tokenizer,
            rows.token_counts(),
            mask_rate=config.mask_rate,
            max_rows=config.max_rows,
            micro_batch=config.micro_batch,
        )
        scores = held_out.scores(target_logits, device)
    if config.words:
        texts = (document.text for document in read_documents(sources))
        pseudo = pseudo_perplexity(target_logits, device, tokenizer, texts, max_words=config.words, seq_len=seq_len)
        scores["pseudo_perplexity"] = pseudo._asdict()
    return scores


def open_masked_lm(folder: Path, backend: str, remedy: str = "") -> tuple[Any, Callable[[Any], Any], Any]:
    """The masked LM of a folder, what gives the logits at the targets of a batch, and where it computes: None for a
    graph, which takes and gives arrays. A folder with another model is refused with the `remedy`."""
    if backend in GRAPHS:
        graph = open_graph(folder, backend, "masked-lm")
        return graph, graph.target_logits, None
    model, device = open_torch(folder, remedy)
    if backend != "bf16":
        return model, model.target_logits, device
    from bertkit.model.products import in_half

    return model, in_half(model.target_logits, device), device


def open_torch(folder: Path, remedy: str = "") -> tuple[Any, Any]:
    """The masked LM of a folder, and where it computes. A folder with another model is refused with the `remedy`."""
    import torch

    from bertkit.cpu import make_ready
    from bertkit.hf.models import load_with_head

    make_ready()
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    device = device or torch.device("cpu")
    return load_with_head(folder, "masked-lm", remedy=remedy).to(device).eval(), device


def print_scores(scores: dict[str, Any]) -> None:
    """A small table."""
    print(f"{'targets':<14}{'count':>10}{'loss':>10}{'accuracy':>10}")
    for name, row in {"all": scores, **scores["buckets"]}.items():
        print(f"{name.replace('_', ' '):<14}{row['targets']:>10,}{row['loss']:>10.4f}{row['accuracy']:>10.1%}")
    print(f"perplexity {scores['perplexity']:.2f}")
    if "pseudo_perplexity" in scores:
        pseudo = scores["pseudo_perplexity"]
        print(
            f"pseudo-perplexity {pseudo['per_word']:.2f} per word, {pseudo['per_byte']:.3f} per byte "
            f"({pseudo['bits_per_byte']:.3f} bits), over {pseudo['num_words']:,} words"
        )
        if pseudo["unknown_share"] > 0.01:
            print(f"note: {pseudo['unknown_share']:.1%} of the subwords are unknown; they look too easy to guess")

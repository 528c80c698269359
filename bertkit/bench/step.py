"""A training step in tokens per second, against transformers' BERT or ModernBERT, and its share of the peak."""

# B rows, L padded length, T tokens in the pack, M masked tokens

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bertkit.bench.measure import Row, Told, announce, apart, compare, interleaved, most_memory
from bertkit.cpu import keep_freed_memory
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, build_encoder, pack
from bertkit.model.config import EncoderConfig
from bertkit.model.products.linear import product
from bertkit.run.peak import step_flops
from data_pipelines.masks.batch import PackedBatch


class Workload(NamedTuple):
    layers: int
    width: int
    vocab_size: int
    rows: int
    length: int
    ragged: bool
    architecture: str = "bert"

    def __str__(self) -> str:
        rows = f"{self.rows}×{self.length} {'ragged' if self.ragged else 'full'}"
        return f"{self.architecture} {self.layers}×{self.width} vocab {self.vocab_size} {rows}"

    def config(self) -> EncoderConfig:
        shape: dict[str, Any] = {
            "vocab_size": self.vocab_size,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.width // 64,
            "max_position_embeddings": self.length,
        }
        if self.architecture == "modernbert":
            return ModernBertConfig(**shape, intermediate_size=2 * self.width)
        shape |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return BertConfig(**shape, intermediate_size=4 * self.width)


WORKLOADS = [
    Workload(4, 256, 30_522, 32, 128, ragged=True),
    Workload(4, 256, 30_522, 32, 128, ragged=False),
    Workload(4, 256, 30_522, 16, 512, ragged=True),
    Workload(4, 256, 8_192, 32, 128, ragged=True),
    Workload(4, 256, 8_192, 32, 128, ragged=False),
    Workload(2, 128, 30_522, 64, 128, ragged=True),
    Workload(2, 128, 30_522, 64, 128, ragged=False),
    Workload(12, 768, 30_522, 8, 128, ragged=True),
    Workload(12, 768, 30_522, 8, 128, ragged=False),
]
WORKLOADS += [workload._replace(architecture="modernbert") for workload in WORKLOADS]


def bench_step(against: str | None, quick: bool) -> Iterator[Told]:
    """Forward, backward and a fused AdamW step on one batch, in fp32 without dropout."""
    torch.set_flush_denormal(True)
    if not against:
        # As training does; theirs does not, and would gain from it in this process.
        keep_freed_memory()
    peak = matrix_peak()
    chosen = [workload for workload in WORKLOADS if workload[:3] == WORKLOADS[0][:3]] if quick else WORKLOADS
    yield (
        f"Real tokens a second, padding not counted; {torch.get_num_threads()} threads; "
        f"peak: {peak / 1e9:.0f} GFLOP/s in fp32 matrix products of 2048²."
    )
    yield "Share of peak counts only the products that a step needs; memory is the peak above the imports."
    if against:
        yield "Checked before timing: both models, with the same weights, have the same loss on the batch."
    memories = []
    for workload in chosen:
        row = _measure(workload, against, quick, peak)
        memories.append(row.theirs_peak_memory_mb)
        yield row
    if against:
        yield f"Memory of theirs, row by row: {', '.join(f'{memory:,.0f} MB' for memory in memories)}."


class Batch(NamedTuple):
    """The same examples padded, for them, and packed, for us."""

    input_ids_BL: Tensor
    attention_mask_BL: Tensor
    labels_BL: Tensor
    packed: PackedBatch


def make_batch(workload: Workload) -> Batch:
    """Random ids, 15% of them targets; ragged rows fill half of the padded batch."""
    generator = torch.Generator().manual_seed(0)
    shape = (workload.rows, workload.length)
    lengths_B = torch.full((workload.rows,), workload.length)
    if workload.ragged:
        # Evenly from one token to all, in random order.
        lengths_B = torch.linspace(1, workload.length, workload.rows).long()
        lengths_B = lengths_B[torch.randperm(workload.rows, generator=generator)]
    mask_BL = (torch.arange(workload.length) < lengths_B[:, None]).long()
    ids_BL = torch.randint(5, workload.vocab_size, shape, generator=generator) * mask_BL
    is_target_BL = (torch.rand(shape, generator=generator) < 0.15) & (mask_BL == 1)
    labels_BL = torch.where(is_target_BL, ids_BL, -100)
    packed, index_T = pack(ids_BL, mask_BL)
    labels_T = labels_BL.flatten()[index_T]
    target_index = (labels_T != -100).nonzero().squeeze(1)
    batch = PackedBatch(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        cu_seqlens=packed.cu_seqlens,
        max_seqlen=packed.max_seqlen,
        target_index=target_index,
        target_ids=labels_T[target_index],
        target_kind=torch.zeros_like(target_index),
        target_starts_word=torch.ones_like(target_index),
    )
    return Batch(ids_BL, mask_BL, labels_BL, batch)


def our_step(workload: Workload, packed: PackedBatch) -> Callable[[], Tensor]:
    """Forward, backward and fused AdamW."""
    model = MaskedLM(build_encoder(workload.config())).train()
    return _step_of(model, lambda: model(packed) / len(packed.target_ids))


def their_step(workload: Workload, batch: Batch) -> Callable[[], Tensor]:
    """The same with transformers' model, of the same weights."""
    model = _their_model(workload).train()
    given = {"attention_mask": batch.attention_mask_BL, "labels": batch.labels_BL}
    return _step_of(model, lambda: model(batch.input_ids_BL, **given).loss)


def _step_of(model: torch.nn.Module, loss_of: Callable[[], Tensor]) -> Callable[[], Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def flops_of(workload: Workload, batch: Batch) -> float:
    """The operations that a step on this batch needs."""
    config = workload.config()
    lengths = batch.packed.cu_seqlens.diff().double()
    return step_flops(
        config,
        head=2 * config.hidden_size * (config.hidden_size + config.vocab_size),
        num_tokens=len(batch.packed.input_ids),
        num_targets=len(batch.packed.target_ids),
        seen=float((lengths**2).sum() / lengths.sum()),
    )


def matrix_peak() -> float:
    """Operations a second of the fastest of some fp32 matrix products of 2048²."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    timing = interleaved({"product": lambda: product(a, b)}, rounds=9)["product"]
    return 2 * 2048**3 / timing.fastest


def peak_memory(workload: Workload, side: str) -> float:
    """Peak memory of three steps in a separate process, above its imports, in megabytes."""
    return float(apart("bertkit.bench.step", side, json.dumps(workload)))


def check_same_loss(candidates: dict[str, Callable[[], Tensor]]) -> None:
    """Refuse to compare the speed of steps that do not compute the same."""
    losses = {name: float(step()) for name, step in candidates.items()}
    if abs(losses["ours"] - losses["theirs"]) >= 1e-3:
        raise RuntimeError(f"the two sides do not compute the same, so their speed says nothing: losses {losses}")


def _measure(workload: Workload, against: str | None, quick: bool, peak: float) -> Row:
    batch = make_batch(workload)
    candidates = {"ours": our_step(workload, batch.packed)}
    if against:
        candidates["theirs"] = their_step(workload, batch)
        check_same_loss(candidates)
    announce(f"step {workload}")
    timings = interleaved(candidates, rounds=3 if quick or workload.width >= 768 else 9)
    seen = {
        "share_of_peak": flops_of(workload, batch) / timings["ours"].median / peak,
        "peak_memory_mb": peak_memory(workload, "ours"),
        "theirs_peak_memory_mb": peak_memory(workload, "theirs") if against else None,
    }
    return compare(f"step {workload}", len(batch.packed.input_ids), "tokens/s", timings, **seen)


def _their_model(workload: Workload) -> Any:
    """With our weights, so that losses can be compared."""
    import transformers

    from bertkit.hf.config import write_config
    from bertkit.hf.models import exported_weights

    ours = MaskedLM(build_encoder(workload.config()))
    values = write_config(ours.config) | {"attn_implementation": "sdpa"}
    config = transformers.AutoConfig.for_model(**values)
    theirs = transformers.AutoModelForMaskedLM.from_config(config)
    theirs.load_state_dict(exported_weights(ours), strict=False)
    return theirs


def _print_peak_memory(side: str, workload: Workload) -> None:
    if side == "theirs":
        _their_model(workload._replace(layers=1, width=64, vocab_size=100))  # imports on first use
    batch = make_batch(workload)
    before = most_memory()
    step = our_step(workload, batch.packed) if side == "ours" else their_step(workload, batch)
    for _ in range(3):
        step()
    print(most_memory() - before)


if __name__ == "__main__":
    _print_peak_memory(sys.argv[1], Workload(*json.loads(sys.argv[2])))

"""A training step in tokens a second, beside transformers' `BertForMaskedLM`, with the share of the machine's peak."""

# B rows, L padded length, T tokens in the pack, M masked tokens

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bertkit.bench.measure import Row, compare, interleaved
from bertkit.info import forward_flops
from bertkit.model import BertConfig, MaskedLM, build_encoder, pack
from data_pipelines.batch import PackedBatch


class Workload(NamedTuple):
    layers: int
    width: int
    vocab_size: int
    rows: int
    length: int
    ragged: bool

    def __str__(self) -> str:
        rows = f"{self.rows}×{self.length} {'ragged' if self.ragged else 'full'}"
        return f"{self.layers}×{self.width} vocab {self.vocab_size} {rows}"

    def config(self) -> BertConfig:
        return BertConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.width // 64,
            intermediate_size=4 * self.width,
            max_position_embeddings=self.length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )


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


def bench_step(against: str | None, quick: bool) -> tuple[list[Row], list[str]]:
    """Rows of a table and notes: forward, backward and a fused AdamW step on one batch, in fp32 without dropout."""
    torch.set_flush_denormal(True)
    peak = matrix_peak()
    rows = [_measure(workload, against, quick, peak) for workload in (WORKLOADS[:2] if quick else WORKLOADS)]
    notes = [
        f"Real tokens a second, padding not counted; {torch.get_num_threads()} threads; "
        f"peak: {peak / 1e9:.0f} GFLOP/s in fp32 matrix products of 2048².",
        "Share of peak counts the products a step cannot do without; memory is the peak above the imports.",
    ]
    if against:
        notes.append("Checked before timing: both models, with the same weights, have the same loss on the batch.")
        theirs = ", ".join(f"{row.theirs_peak_memory_mb:,.0f} MB" for row in rows)
        notes.append(f"Memory of theirs, row by row: {theirs}.")
    return rows, notes


class Batch(NamedTuple):
    """The same examples padded, for them, and packed, for us."""

    input_ids_BL: Tensor
    attention_mask_BL: Tensor
    labels_BL: Tensor
    packed: PackedBatch


def make_batch(workload: Workload) -> Batch:
    """Random ids, 15% of them targets; ragged rows fill about half of the padded batch."""
    generator = torch.Generator().manual_seed(0)
    shape = (workload.rows, workload.length)
    lengths_B = torch.full((workload.rows,), workload.length)
    if workload.ragged:
        # Evenly from very short to full, in random order.
        lengths_B = torch.linspace(workload.length / 16, workload.length * 15 / 16, workload.rows).long()
        lengths_B = lengths_B[torch.randperm(workload.rows, generator=generator)]
        lengths_B[0] = workload.length
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


def our_step(workload: Workload, batch: Batch) -> Callable[[], Tensor]:
    model = MaskedLM(build_encoder(workload.config())).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    num_targets = len(batch.packed.target_ids)

    def step() -> Tensor:
        loss = model(batch.packed) / num_targets
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def their_step(workload: Workload, batch: Batch) -> Callable[[], Tensor]:
    from dataclasses import asdict

    import transformers

    config = asdict(workload.config())
    del config["position_embedding_type"]
    model = transformers.BertForMaskedLM(transformers.BertConfig(**config, attn_implementation="sdpa")).train()
    _copy_weights(model, workload)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        loss = model(batch.input_ids_BL, attention_mask=batch.attention_mask_BL, labels=batch.labels_BL).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def step_flops(workload: Workload, batch: Batch) -> float:
    """What a step cannot do without: forward and backward of the encoder for every token, less what the last block
    need not compute for tokens that are no targets, and of the head for targets."""
    config = workload.config()
    num_tokens, num_targets = len(batch.packed.input_ids), len(batch.packed.target_ids)
    width = config.hidden_size
    lengths = batch.packed.cu_seqlens.diff().double()
    seen = float((lengths**2).sum() / lengths.sum())
    layer = forward_flops(config, 0) / config.num_hidden_layers
    keys_and_values = 2 * 2 * width * width
    per_token = (config.num_hidden_layers - 1) * (layer + 4 * seen * width) + keys_and_values
    per_target = layer - keys_and_values + 4 * seen * width + 2 * width * (width + config.vocab_size)
    return 3 * (num_tokens * per_token + num_targets * per_target)


def matrix_peak(size: int = 2048, rounds: int = 9) -> float:
    """Operations a second of the fastest of some fp32 matrix products."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    timing = interleaved({"product": lambda: a @ b}, rounds=rounds)["product"]
    return 2 * size**3 / timing.fastest


def peak_memory(workload: Workload, side: str) -> float:
    """Megabytes above the imports that three steps take at most, in a process of their own."""
    command = [sys.executable, "-m", "bertkit.bench.step", side, json.dumps(workload)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _measure(workload: Workload, against: str | None, quick: bool, peak: float) -> Row:
    batch = make_batch(workload)
    candidates = {"ours": our_step(workload, batch)}
    if against:
        candidates["theirs"] = their_step(workload, batch)
        losses = {name: float(step()) for name, step in candidates.items()}
        assert abs(losses["ours"] - losses["theirs"]) < 1e-3, losses
    timings = interleaved(candidates, rounds=3 if quick else 9)
    seen = {
        "share_of_peak": step_flops(workload, batch) / timings["ours"].median / peak,
        "peak_memory_mb": peak_memory(workload, "ours"),
        "theirs_peak_memory_mb": peak_memory(workload, "theirs") if against else None,
    }
    return compare(f"step {workload}", len(batch.packed.input_ids), "tokens/s", timings, **seen)


def _copy_weights(theirs, workload: Workload) -> None:
    """Start both from the same weights, so that their losses can be compared."""
    from bertkit.hf import layout_of
    from bertkit.hf.names import weight_table

    ours = MaskedLM(build_encoder(workload.config()))
    state = ours.state_dict()
    for row in weight_table(layout_of(ours)):
        theirs.load_state_dict(dict(row.write(state[row.ours])), strict=False)


def _print_peak_memory(side: str, workload: Workload) -> None:
    if side == "theirs":
        import transformers

        transformers.BertForMaskedLM  # noqa: B018 (imported on first use)
    batch = make_batch(workload)
    before = _most_memory()
    step = (our_step if side == "ours" else their_step)(workload, batch)
    for _ in range(3):
        step()
    print(_most_memory() - before)


def _most_memory() -> float:
    """Megabytes this process held at most."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage would also count what the process that started this one held.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


if __name__ == "__main__":
    _print_peak_memory(sys.argv[1], Workload(*json.loads(sys.argv[2])))

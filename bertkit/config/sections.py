"""Every setting of the training loop with its default and its help, free of heavy imports."""

from dataclasses import dataclass, field
from typing import Literal

from data_pipelines.text.config import CorpusConfig

BUDGETS = ("steps", "tokens", "minutes")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    steps: int | None = None
    """Optimizer steps. Give one of steps, tokens and minutes."""

    tokens: float | None = None
    """Tokens to train on, repeats counted; turned into steps from the mean length of a row."""

    minutes: float | None = None
    """Training time. A few steps are timed once; the number of steps that fits is written down and stays fixed."""

    global_batch: int = 256
    """Rows in one optimizer step, over all processes and micro-batches."""

    first_batch: int | None = None
    """Rows in the first steps; doubled until it is global_batch. None starts with global_batch."""

    batch_warmup: float = 0.1
    """Share of the steps in which the batch grows from first_batch to global_batch."""

    micro_batch: int = 32
    """Rows a process computes at once: memory and speed. The result differs only by rounding and dropout draws."""

    clip_norm: float = 1.0
    """Gradients are scaled down to this norm; 0 leaves them."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """fp32, or bf16 for the matrix products (weights stay fp32). On CPUs without AMX bf16 is slower."""

    gradient_checkpointing: bool = False
    """Recompute each layer in the backward pass: about a third more time, far less memory."""

    compile: bool = False
    """Compile the model with torch.compile; it is meant for GPUs, and takes long for the first steps."""

    max_bad_steps: int = 10
    """So many steps in a row with a loss or gradient that is not finite end the run; fewer are skipped."""

    def __post_init__(self):
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"steps, tokens, minutes: exactly one says how long to train, got {found}")
        if self.steps is not None and self.steps < 0:
            raise ValueError(f"steps must be at least 0, got {self.steps}")
        if self.steps is not None and self.steps > 2**40:
            raise ValueError(f"steps must be at most {2**40}, got {self.steps}")
        for name in ("tokens", "minutes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be greater than 0, got {value}")
            if value is not None and value > 1e18:
                raise ValueError(f"{name} must be at most 1e18, got {value}")
        for name in ("global_batch", "micro_batch", "max_bad_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
            if getattr(self, name) > 2**31:
                raise ValueError(f"{name} must be at most {2**31}, got {getattr(self, name)}")
        if self.clip_norm < 0:
            raise ValueError(f"clip_norm must be at least 0, got {self.clip_norm}")
        if not 0 <= self.batch_warmup <= 1:
            raise ValueError(f"batch_warmup must lie in [0, 1], got {self.batch_warmup}")
        if self.first_batch is not None:
            growth = self.global_batch / self.first_batch if self.first_batch > 0 else 0
            if growth not in (2**doublings for doublings in range(32)):
                raise ValueError(
                    f"first_batch must reach global_batch={self.global_batch} by doubling, got {self.first_batch}"
                )


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    name: Literal["adamw", "muon"] = "adamw"
    """adamw for everything, or muon for the matrices inside the layers and adamw for the rest."""

    lr: float = 5e-4
    """Highest learning rate of AdamW."""

    muon_lr: float = 2e-3
    """Highest learning rate of Muon; its updates have the size of AdamW's, so the same order of numbers fits."""

    betas: tuple[float, ...] = (0.9, 0.98)
    """AdamW: how slowly the mean and the spread of the gradients are forgotten."""

    eps: float = 1e-6
    """AdamW: added to the spread."""

    momentum: float = 0.95
    """Muon: how slowly the mean of the gradients is forgotten."""

    weight_decay: float = 0.01
    """Decay of the matrices of linear layers; biases, norms and embeddings never decay."""

    schedule: Literal["linear", "cosine", "wsd"] = "linear"
    """After the warmup: down in a straight line, as a cosine, or constant and then down (wsd)."""

    warmup: float = 0.06
    """Share of the steps in which the rate rises to its highest value."""

    decay: float = 0.2
    """Share of the steps, at the end, in which the rate falls (wsd only)."""

    final_lr: float = 0.0
    """The rate at the end as a share of the highest."""

    def __post_init__(self):
        for name in ("lr", "muon_lr", "eps"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than 0, got {getattr(self, name)}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be two numbers in [0, 1), got {list(self.betas)}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum}")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay}")
        for name in ("warmup", "decay", "final_lr"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if self.schedule == "wsd" and self.warmup + self.decay > 1:
            raise ValueError(f"warmup + decay must not exceed 1, got {self.warmup} + {self.decay}")


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    every: int = 1000
    """Evaluate on the held-out split every so many steps, and at the end; 0 only at the end."""

    max_rows: int = 1000
    """Held-out rows looked at, always the same ones."""

    mask_rate: float = 0.15
    """Share of masked tokens in evaluation, apart from mask.rate, so that runs compare."""

    def __post_init__(self):
        if self.every < 0:
            raise ValueError(f"every must be at least 0, got {self.every}")
        if self.max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {self.max_rows}")
        if not 0 < self.mask_rate < 1:
            raise ValueError(f"mask_rate must lie in (0, 1), got {self.mask_rate}")


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    seq_len: int = 128
    """Longest row in tokens; never more than the model has positions for."""

    mask_rate: float = EvalConfig.mask_rate
    """Share of masked tokens."""

    max_rows: int = 2000
    """Rows looked at for loss and accuracy."""

    words: int = 2000
    """Words looked at for pseudo-perplexity, one forward pass for each piece; 0 leaves it out."""

    micro_batch: int = 32
    """Rows computed at once."""

    documents: Literal["blank-line", "line"] = CorpusConfig.documents
    """What separates documents in plain text."""

    field: str = CorpusConfig.field
    """Column or key that holds the document in JSON Lines, CSV, Parquet and Hugging Face datasets."""

    def __post_init__(self):
        for name, least in (("seq_len", 8), ("max_rows", 1), ("words", 0), ("micro_batch", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.mask_rate < 1:
            raise ValueError(f"mask_rate must lie in (0, 1), got {self.mask_rate}")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    dir: str = ""
    """Folder of the run: checkpoints, metrics.jsonl, the resolved recipe, the export. Default: runs/RECIPE."""

    seed: int = 0
    """Key of every random decision: initial weights, order, masks, dropout."""

    save_every: int = 1000
    """A checkpoint every so many steps, and at the end."""

    keep: int = 2
    """Newest checkpoints to keep, beside the one with the best held-out loss."""

    log_every: int = 20
    """A line in metrics.jsonl every so many steps."""

    num_workers: int = 1
    """Processes that read and mask ahead of the training, for each rank; 0 does it in between."""

    trackers: list[str] = field(default_factory=list)
    """Accelerate trackers that get the metrics too: tensorboard (extra track), wandb, ..."""

    def __post_init__(self):
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must lie between 0 and {2**63 - 1}, got {self.seed}")
        for name in ("save_every", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.keep < 2:
            raise ValueError(f"keep must be at least 2 (a damaged checkpoint needs a predecessor), got {self.keep}")
        if not 0 <= self.num_workers <= 64:
            raise ValueError(f"num_workers must lie between 0 and 64, got {self.num_workers}")

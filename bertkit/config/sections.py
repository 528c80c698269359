"""Every setting of training with its default and its help, free of heavy imports."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from bertkit.config.fields import MAY_CHANGE
from data_pipelines.bounds import Range, check_bounds
from data_pipelines.text.stores import is_url

BUDGETS = ("steps", "tokens", "minutes")

Count = Annotated[int, Range("[1, inf)")]
CountOrZero = Annotated[int, Range("[0, inf)")]
# The high ends of a batch and of a budget are far beyond any run: a number above is a slip.
Batch = Annotated[int, Range("[1, 2**31]")]
Share = Annotated[float, Range("[0, 1]")]
Positive = Annotated[float, Range("(0, inf)")]
NotNegative = Annotated[float, Range("[0, inf)")]
Decay = Annotated[float, Range("[0, 1)")]
Schedule = Literal["linear", "cosine", "wsd"]
Seed = Annotated[int, Range("[0, 2**63)")]
# A damaged checkpoint needs a predecessor.
Kept = Annotated[int, Range("[2, inf)")]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    objective: str = "masked-lm"
    """What is learned: masked-lm, to predict the masked tokens; causal-masked and masked-next-token, masked-lm with
    next-token prediction in some of the rows; causal-first, next-token prediction first, then masked-lm; diffusion,
    masked-lm with another mask rate in each row; hard-targets, masked-lm that masks hard tokens more often;
    token-dropping, masked-lm in which some tokens skip the middle blocks; replaced-token-detection, which tokens a
    small generator replaced."""

    causal_share: Share = 0.25
    """Share of the rows (causal-masked, masked-next-token) or of the steps (causal-first) in which every token is
    predicted from those before it."""

    difficulty: Literal["frequency", "neighbor"] = "neighbor"
    """How hard a token is (hard-targets): by how rare it is, or by how rarely it follows the token before it."""

    drop_share: Share = 0.5
    """Share of the ordinary tokens, targets never, that skip the middle blocks (token-dropping)."""

    generator_layers: Count | None = None
    """Blocks of the generator (replaced-token-detection). None: a quarter of the encoder's."""

    detection_weight: Positive = 50.0
    """Weight of the detection loss of a token; the generator's loss of a masked token has weight 1
    (replaced-token-detection)."""

    steps: Annotated[int | None, Range("[0, 2**40]")] = None
    """Optimizer steps. Give one of steps, tokens and minutes."""

    tokens: Annotated[float | None, Range("(0, 1e18]")] = None
    """Tokens to train on, repetitions included; turned into steps by the mean length of a row."""

    minutes: Annotated[float | None, Range("(0, 1e18]")] = None
    """Training time in minutes. A few steps are timed at the start to see how many fit. After a quarter of them their
    number is corrected once (causal-first: a quarter of those after the causal ones); a resume keeps it."""

    global_batch: Batch = 256
    """Rows in one optimizer step, over all processes and micro-batches."""

    first_batch: Batch | None = None
    """Rows in the first optimizer steps, doubled until it is global_batch. None: global_batch from the start."""

    batch_warmup: Share = 0.1
    """Share of the steps in which the batch grows from first_batch to global_batch."""

    micro_batch: Annotated[Batch, MAY_CHANGE] = 32
    """Rows that a process computes at once: more need more memory and are faster. The result differs only by rounding
    and by the random draws of dropout."""

    clip_norm: NotNegative = 1.0
    """Largest norm of the gradients; larger ones are scaled down to it. 0 leaves them as they are."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 for the matrix products (weights stay fp32), or fp32. auto takes bf16 on GPUs that compute in it, and fp32
    elsewhere. On CPUs bf16 is faster where they have AVX512-BF16 or AMX, and slower on others."""

    gradient_checkpointing: Annotated[bool, MAY_CHANGE] = False
    """Recompute each layer in the backward pass: about a third more time, far less memory."""

    compile: bool = False
    """Compile the model with torch.compile. For GPUs; the first steps take long."""

    average: Share = 0.0
    """Share of the steps, at the end, whose weights are averaged; the mean is evaluated and exported."""

    max_bad_steps: Annotated[Count, MAY_CHANGE] = 10
    """A step whose loss or gradient is not finite is skipped; this many in a row end the run."""

    def __post_init__(self):
        check_bounds(self)
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"steps, tokens, minutes: exactly one must be set, got {found}")
        if self.first_batch is not None:
            doublings = self.global_batch / self.first_batch
            if doublings not in (2**number for number in range(32)):
                raise ValueError(
                    f"first_batch must reach global_batch={self.global_batch} by doubling, got {self.first_batch}"
                )


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    name: str = "adamw"
    """adamw for everything, or muon for the matrices inside the layers and adamw for the rest."""

    lr: Positive = 5e-4
    """Peak learning rate of AdamW."""

    muon_lr: Positive = 2e-3
    """Peak learning rate of Muon; its updates have the size of AdamW's, so values of the same order fit."""

    betas: tuple[Decay, ...] = (0.9, 0.98)
    """Adam's beta1 and beta2."""

    eps: Positive = 1e-6
    """Adam's epsilon."""

    momentum: Decay = 0.95
    """Muon's momentum."""

    weight_decay: NotNegative = 0.01
    """Weight decay of the matrices of linear layers; biases, norms and embeddings never decay."""

    schedule: Schedule = "wsd"
    """The learning rate after warmup: falling linearly, falling as a cosine, or constant and falling at the end
    (wsd: warmup, stable, decay)."""

    warmup: Share = 0.06
    """Share of the steps in which the learning rate rises to its peak."""

    warmup_steps: CountOrZero | None = None
    """The same as a number of steps, for a run whose length nobody knows yet. None: `warmup` decides."""

    decay: Share = 0.5
    """Share of the steps, at the end, in which the learning rate falls (wsd only)."""

    final_lr: Share = 0.0
    """Learning rate at the end, as a share of the peak."""

    def __post_init__(self):
        check_bounds(self)
        if len(self.betas) != 2:
            raise ValueError(f"betas must be two numbers, got {list(self.betas)}")
        if self.schedule == "wsd" and self.warmup_steps is None and self.warmup + self.decay > 1:
            raise ValueError(
                f"warmup + decay must not exceed 1, got {self.warmup} + {self.decay}; lower decay too, "
                "or set schedule=linear"
            )


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """How a run measures itself on held-out text while it trains: the section `eval`."""

    every: Annotated[CountOrZero, MAY_CHANGE] = 1000
    """Steps between evaluations on the held-out split; the last step is always evaluated. 0: only the last step."""

    max_rows: Annotated[Count, MAY_CHANGE] = 1000
    """Held-out rows to evaluate on, always the same ones."""

    mask_rate: Annotated[float, Range("(0, 1)"), MAY_CHANGE] = 0.15
    """Share of masked tokens in evaluation. It does not follow mask.rate, so that runs compare."""

    pairs: Annotated[list[str], MAY_CHANGE] = field(default_factory=list)
    """Files or folders of minimal pairs, as `bertkit judge` reads them, to judge at every evaluation too."""

    max_pairs: Annotated[CountOrZero, MAY_CHANGE] = 100
    """Pairs of each paradigm to judge, the first ones; 0 takes all."""

    def __post_init__(self):
        check_bounds(self)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    dir: Annotated[str, MAY_CHANGE] = ""
    """Folder of the run: checkpoints, metrics.jsonl, the resolved recipe, the export. Default: runs/RECIPE."""

    seed: Seed = 0
    """Key of every random decision: initial weights, order, masks, dropout."""

    save_every: Annotated[Count, MAY_CHANGE] = 1000
    """Steps between checkpoints; the last step always gets one."""

    keep: Annotated[Kept, MAY_CHANGE] = 2
    """Newest checkpoints to keep, beside the one with the best held-out loss. At least 2, in case one is damaged."""

    log_every: Annotated[Count, MAY_CHANGE] = 20
    """Steps between lines in metrics.jsonl."""

    num_workers: Annotated[int, Range("[0, 64]"), MAY_CHANGE] = 1
    """Processes of each rank that read and mask batches ahead of training; 0 does it between the steps."""

    deterministic: Annotated[bool, MAY_CHANGE] = False
    """Use only algorithms that give the same bits every time: slower ones on a GPU, the usual ones on a CPU."""

    restart: Annotated[bool, MAY_CHANGE] = False
    """Start over where a run has trained before and its checkpoints are gone; otherwise that is refused."""

    mirror: Annotated[str | None, MAY_CHANGE] = None
    """URL (s3://, gs://, ...) to which checkpoints and the export are copied in the background. A run whose folder is
    gone, or older, resumes from there."""

    trackers: Annotated[list[str], MAY_CHANGE] = field(default_factory=list)
    """Trackers of Accelerate that get the metrics too, such as tensorboard (extra track) or wandb."""

    def __post_init__(self):
        check_bounds(self)
        check_run_dir(self.dir, f"; run.mirror={self.dir} copies the run there")


def check_run_dir(folder: str, remedy: str = "") -> None:
    """Refuse a URL: it would make a folder called s3:."""
    if is_url(folder):
        raise ValueError(f"dir must be a folder on this disk, got {folder}{remedy}")

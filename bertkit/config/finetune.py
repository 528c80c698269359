"""Every setting of fine-tuning with its default and its help, and how its recipes are read; no heavy imports."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from bertkit.config.fields import build
from bertkit.config.recipe import recipe_values
from bertkit.config.sections import OptimConfig
from data_pipelines.labels.config import TaggedConfig


@dataclass(frozen=True, kw_only=True)
class LabeledSection(TaggedConfig):
    train: list[str]
    """Labeled files (.conllu, .jsonl, other names: CoNLL columns; each also .gz), or datasets: hf:NAME or a folder."""

    dev: list[str] = field(default_factory=list)
    """Labeled data to choose the best step by; none takes the last step."""

    test: list[str] = field(default_factory=list)
    """Labeled data that is scored once, at the very end."""

    train_share: float = 1.0
    """Share of the training sentences to use, always the same ones: shows what fewer labels would give."""

    max_length: int = 256
    """Longest window in pieces; longer sentences are cut into overlapping windows. Never more than the model has."""

    pieces: Literal["first", "all"] = "first"
    """Whether a word's first piece learns its tag, or all do (then B- goes on as I-). The first one answers."""

    def __post_init__(self):
        if not self.train:
            raise ValueError("train names no file; give at least one")
        if not 0 < self.train_share <= 1:
            raise ValueError(f"train_share must lie in (0, 1], got {self.train_share}")
        if self.max_length < 8:
            raise ValueError(f"max_length must be at least 8, got {self.max_length}")


@dataclass(frozen=True, kw_only=True)
class StartSection:
    init: str = ""
    """The encoder to begin with: a bertkit run, an export, a Hugging Face folder, or hf:NAME to download one. Empty:
    from scratch."""

    like: str = "demo"
    """From scratch: a model folder whose shape and tokenizer to take, or a pretraining recipe whose shape to take
    (the tokenizer is then trained on the training sentences)."""

    freeze: bool = False
    """Train the new head only and leave the encoder as it is."""


@dataclass(frozen=True, kw_only=True)
class TuneSection:
    epochs: float = 4.0
    """How often the training data is gone through."""

    global_batch: int = 32
    """Sentences (or windows of long ones) in one optimizer step, over all processes and micro-batches."""

    micro_batch: int = 32
    """Sentences a process computes at once: memory and speed. The result differs only by rounding and dropout draws."""

    clip_norm: float = 1.0
    """Gradients are scaled down to this norm; 0 leaves them."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """fp32, or bf16 for the matrix products (weights stay fp32)."""

    class_weights: Literal["none", "balanced"] = "none"
    """balanced gives rare labels more weight in the loss, by the square root of how rare they are."""

    patience: int = 0
    """Stop after so many evaluations without a better dev score; 0 trains to the end."""

    max_bad_steps: int = 10
    """So many steps in a row with a loss or gradient that is not finite end the run; fewer are skipped."""

    def __post_init__(self):
        if self.epochs < 0:
            raise ValueError(f"epochs must be at least 0, got {self.epochs}")
        for name in ("global_batch", "micro_batch", "max_bad_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("clip_norm", "patience"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class TuneOptimSection(OptimConfig):
    layer_decay: float = 1.0
    """Each layer learns this much slower than the one above it; 1 makes no difference between them."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay must lie in (0, 1], got {self.layer_decay}")


@dataclass(frozen=True, kw_only=True)
class TuneEvalSection:
    per_epoch: int = 1
    """Evaluations on data.dev in each epoch."""

    worst: int = 5
    """Sentences to show with gold and predicted tags side by side, those with most mistakes."""

    def __post_init__(self):
        if self.per_epoch < 1:
            raise ValueError(f"per_epoch must be at least 1, got {self.per_epoch}")
        if self.worst < 0:
            raise ValueError(f"worst must be at least 0, got {self.worst}")


@dataclass(frozen=True, kw_only=True)
class TuneRunSection:
    dir: str = ""
    """Folder of the run: a folder for each seed, scores.json, and the best tagger in export. Default: runs/RECIPE."""

    seeds: list[int] = field(default_factory=lambda: [0])
    """One training for each: the key of its initial head, order and dropout. Several give mean and deviation."""

    save_every: int = 200
    """A checkpoint every so many steps, and at each evaluation."""

    keep: int = 2
    """Newest checkpoints to keep, beside the one with the best dev score."""

    log_every: int = 20
    """A line in metrics.jsonl every so many steps."""

    trackers: list[str] = field(default_factory=list)
    """Accelerate trackers that get the metrics too: tensorboard (extra track), wandb, ..."""

    def __post_init__(self):
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must be distinct and at least one, got {self.seeds}")
        for seed in self.seeds:
            if not 0 <= seed < 2**63:
                raise ValueError(f"seeds must lie between 0 and {2**63 - 1}, got {seed}")
        for name in ("save_every", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.keep < 2:
            raise ValueError(f"keep must be at least 2 (a damaged checkpoint needs a predecessor), got {self.keep}")


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe:
    task: Literal["tagging", "classification"]
    """tagging (a tag for each word) or classification (a label for each text)."""

    data: LabeledSection
    model: StartSection = field(default_factory=StartSection)
    train: TuneSection = field(default_factory=TuneSection)
    optim: TuneOptimSection = field(default_factory=TuneOptimSection)
    eval: TuneEvalSection = field(default_factory=TuneEvalSection)
    run: TuneRunSection = field(default_factory=TuneRunSection)


# What may differ when a run goes on: places and habits, not what is computed. Data is known by its fingerprint.
MAY_CHANGE = frozenset(
    {
        *("data.train", "data.dev", "data.test", "data.errors", "model.init", "model.like"),
        *("train.micro_batch", "train.max_bad_steps", "eval.worst"),
        *("run.dir", "run.seeds", "run.save_every", "run.keep", "run.log_every", "run.trackers"),
    }
)


def read_finetune_recipe(name: str, changes: Iterable[str] = ()) -> FinetuneRecipe:
    """The fine-tuning recipe of this name (or path), with `key=value` changes on top."""
    return build(FinetuneRecipe, recipe_values(name, changes, "finetune"))

"""Every setting of fine-tuning with its default and its help, and how its recipes are read; no heavy imports."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from bertkit.config.fields import MAY_CHANGE, build
from bertkit.config.sections import (
    Batch,
    Count,
    CountOrZero,
    Kept,
    NotNegative,
    OptimConfig,
    Schedule,
    Seed,
    Share,
    check_run_dir,
)
from data_pipelines.bounds import Range, check_bounds
from data_pipelines.labels.config import TaggedConfig


@dataclass(frozen=True, kw_only=True)
class LabeledSection(TaggedConfig):
    # Labeled data is known by its fingerprint, wherever it lies and however it is read.
    encoding: Annotated[str, MAY_CHANGE] = TaggedConfig.encoding
    errors: Annotated[Literal["strict", "replace"], MAY_CHANGE] = TaggedConfig.errors

    train: Annotated[list[str], MAY_CHANGE]
    """Labeled files (.conllu, .jsonl, .json, .ann, .spacy, other names: CoNLL columns; each also .gz), or datasets:
    hf:NAME or a folder."""

    dev: Annotated[list[str], MAY_CHANGE] = field(default_factory=list)
    """Labeled data to choose the best step by; without any, the last step is taken."""

    test: Annotated[list[str], MAY_CHANGE] = field(default_factory=list)
    """Labeled data that is scored once, at the very end."""

    train_share: Annotated[float, Range("(0, 1]")] = 1.0
    """Share of the training sentences to use, always the same ones: shows what fewer labels would give."""

    max_length: Annotated[int, Range("[8, inf)")] = 256
    """Longest window in subwords, and never more than the model has positions for. Longer sentences are cut into
    overlapping windows."""

    stride: CountOrZero = 0
    """Subwords from the beginning of one window to that of the next, at most a window; 0: half a window."""

    train_windows: Count = 16
    """Most windows of a long text that a step trains on, drawn anew in every epoch. Scores and predictions read all."""

    context: Literal["auto", "sentence", "document"] = "sentence"
    """Context of a word in tagging: its sentence, or as much of its document as a window holds, in training and
    tagging alike. auto: the document, where the training files mark documents (-DOCSTART-, # newdoc, doc_id)."""

    pieces: Literal["first", "mean"] = "first"
    """What answers for a word, in training and tagging alike: its first subword, or the mean of the logits of all its
    subwords, which lets its ending speak too."""

    segmenter: str = ""
    """What splits raw text of a script without spaces into words for the tagger: jieba (Chinese, extra zh). Default: a
    segmenter learned from the training words."""

    legal_spans: bool = True
    """Predict only tag sequences that the scheme allows, of those the most probable one. false: each word's best tag
    by itself, even an I- that continues nothing."""

    units: Literal["token", "character", "byte"] = "token"
    """What a text is rewritten in: the tokens of the encoder's tokenizer, or of one trained on the pairs; characters or
    bytes, for which a model from scratch gets a small tokenizer of its own."""

    order: Literal["left-to-right", "parallel"] = "left-to-right"
    """How a text is rewritten: left to right, token by token; or in parallel, all tokens at once in a few passes, the
    surest ones first."""

    slots: Literal["after", "between"] = "after"
    """Where a text is rewritten in parallel: after its source, up to an end; or between the tokens of the source, each
    next to what becomes of it, for texts that keep most of their source in its order."""

    corruption: Annotated[float, Range("[0, 1)")] = 0.0
    """Share of the target's tokens that training shows wrongly, replaced by random ones, others at every step, while
    the answers stay right: a writer reads its own mistakes, too."""

    passes: Count = 4
    """Passes in which a text is rewritten in parallel."""

    beams: Count = 1
    """Number of beams when a text is rewritten left to right; 1 always takes the most likely token."""

    length_penalty: NotNegative = 0.0
    """Left to right with several beams: scores are divided by ((5 + length) / 6) to this power, so that longer texts
    win more often."""

    def __post_init__(self):
        check_bounds(self)
        super().__post_init__()
        if not self.train:
            raise ValueError("train is empty; give at least one file")
        if self.slots == "between" and self.order != "parallel":
            raise ValueError(f"slots=between belongs to order=parallel, but order is {self.order}")


@dataclass(frozen=True, kw_only=True)
class StartSection:
    init: Annotated[str, MAY_CHANGE] = ""
    """The encoder to start from: a bertkit run, an export, a Hugging Face folder, or hf:NAME to download one. Empty:
    from scratch."""

    like: Annotated[str, MAY_CHANGE] = "demo"
    """From scratch: a model folder whose shape and tokenizer to take, or a pretraining recipe whose shape to take
    (the tokenizer is then trained on the training sentences)."""

    freeze: bool = False
    """Train the new head only and leave the encoder as it is."""


@dataclass(frozen=True, kw_only=True)
class TuneSection:
    epochs: NotNegative = 4.0
    """Passes over the training data; may be a fraction."""

    global_batch: Batch = 32
    """Sentences (or windows of long ones) in one optimizer step, over all processes and micro-batches."""

    micro_batch: Annotated[Batch, MAY_CHANGE] = 32
    """Sentences that a process computes at once: more need more memory and are faster. The result differs only by
    rounding and by the random draws of dropout."""

    clip_norm: NotNegative = 1.0
    """Largest norm of the gradients; larger ones are scaled down to it. 0 leaves them as they are."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 for the matrix products (weights stay fp32), or fp32. auto takes bf16 on GPUs that compute in it, and fp32
    elsewhere. On CPUs bf16 is faster where they have AVX512-BF16 or AMX, and slower on others."""

    adapt_steps: CountOrZero = 0
    """Steps of masked-language modelling on the training sentences before fine-tuning, each of 16 rows, at optim.lr. 0:
    none."""

    adapt_minutes: NotNegative = 0.0
    """The same as a number of minutes. 0: none."""

    token_dropout: Annotated[float, Range("[0, 1)")] = 0.0
    """Share of the subwords that training hides behind the mask token, others at every step: the context of a word
    must then predict its label, too. Not for tasks that write."""

    class_weights: Literal["none", "balanced"] = "none"
    """balanced gives rare labels more weight in the loss, by the square root of how rare they are."""

    patience: CountOrZero = 0
    """Evaluations without a better dev score after which training stops; 0 trains to the end."""

    max_bad_steps: Annotated[Count, MAY_CHANGE] = 10
    """A step whose loss or gradient is not finite is skipped; this many in a row end the run."""

    def __post_init__(self):
        check_bounds(self)
        if self.adapt_steps and self.adapt_minutes:
            raise ValueError("adapt_steps and adapt_minutes cannot both be set; give one of them")

    @property
    def adapts(self) -> bool:
        return bool(self.adapt_steps or self.adapt_minutes)


@dataclass(frozen=True, kw_only=True)
class TuneOptimSection(OptimConfig):
    schedule: Schedule = "linear"
    """The learning rate after warmup: falling linearly, falling as a cosine, or constant and falling at the end (wsd:
    warmup, stable, decay)."""

    decay: Share = 0.2
    """Share of the steps, at the end, in which the learning rate falls (wsd only)."""

    layer_decay: Annotated[float, Range("(0, 1]")] = 1.0
    """Learning rate of each layer as a share of the one above it; 1 gives all layers the same."""


@dataclass(frozen=True, kw_only=True)
class TuneEvalSection:
    per_epoch: Count = 1
    """Evaluations on data.dev in each epoch."""

    worst: Annotated[CountOrZero, MAY_CHANGE] = 5
    """Sentences to keep with gold and predicted tags side by side, those with most mistakes: in worst.txt and the
    report."""

    def __post_init__(self):
        check_bounds(self)


@dataclass(frozen=True, kw_only=True)
class TuneRunSection:
    dir: Annotated[str, MAY_CHANGE] = ""
    """Folder of the run: a folder for each seed, scores.json, and the best tagger in export. Default: runs/RECIPE."""

    seeds: Annotated[list[Seed], MAY_CHANGE] = field(default_factory=lambda: [0])
    """One training for each seed, the key of its initial head, order and dropout. Several give mean and deviation."""

    save_every: Annotated[Count, MAY_CHANGE] = 200
    """Steps between checkpoints; every evaluation gets one too."""

    keep: Annotated[Kept, MAY_CHANGE] = 2
    """Newest checkpoints to keep, beside the one with the best dev score. At least 2, in case one is damaged."""

    log_every: Annotated[Count, MAY_CHANGE] = 20
    """Steps between lines in metrics.jsonl."""

    deterministic: Annotated[bool, MAY_CHANGE] = False
    """Use only algorithms that give the same bits every time: slower ones on a GPU, the usual ones on a CPU."""

    restart: Annotated[bool, MAY_CHANGE] = False
    """Start over where a seed has trained before and its checkpoints are gone; otherwise that is refused."""

    trackers: Annotated[list[str], MAY_CHANGE] = field(default_factory=list)
    """Trackers of Accelerate that get the metrics too, such as tensorboard (extra track) or wandb."""

    def __post_init__(self):
        check_bounds(self)
        check_run_dir(self.dir)
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must be a non-empty list of distinct numbers, got {self.seeds}")


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe:
    task: str
    """What is learned: tagging (a tag for each word), classification (a label for each text), multi-label (any number
    of labels), pairs (a label for two texts), regression (a number for a text), similarity (a number for two) or
    rewrite (a text for a text)."""

    data: LabeledSection
    model: StartSection = field(default_factory=StartSection)
    train: TuneSection = field(default_factory=TuneSection)
    optim: TuneOptimSection = field(default_factory=TuneOptimSection)
    eval: TuneEvalSection = field(default_factory=TuneEvalSection)
    run: TuneRunSection = field(default_factory=TuneRunSection)


def read_finetune_recipe(name: str, changes: Iterable[str] = ()) -> FinetuneRecipe:
    """The fine-tuning recipe of this name (or path), with `key=value` changes on top."""
    from bertkit.config.recipe import recipe_values  # here, because whoever only tags has no YAML to read

    return build(FinetuneRecipe, recipe_values(name, changes, "finetune"))

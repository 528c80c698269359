"""What fine-tuning begins with: a tokenizer and a model, pretrained or from scratch in a given shape."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bertkit.config.fields import part
from bertkit.config.finetune import FinetuneRecipe, StartSection
from bertkit.config.recipe import read_recipe, read_sections
from bertkit.finetune.labeled import Labeled
from bertkit.finetune.tasks.task import Task, Vocabulary
from bertkit.hf import Model, load_outline
from bertkit.hf.folder import check_vocabulary, is_remote, resolve
from bertkit.hf.models import check_head, open_model
from bertkit.model.config import EncoderConfig
from bertkit.model.heads import HEADS, ModelWithHead
from bertkit.model.initialization import fill, outline_encoder
from bertkit.run.lock import locked
from data_pipelines import durable
from data_pipelines.labels.sentence import Sentence
from data_pipelines.masks.keyed import fold
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.digest import files_hash
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from data_pipelines.vocab.units import unit_tokenizer


class Start(NamedTuple):
    tokenizer: Tokenizer
    config: EncoderConfig
    build: Callable[..., ModelWithHead]
    """The model at step 0, a function of the seed; with outline=True it knows its weights and has none."""
    fingerprint: str
    """Tells apart what training begins with; empty from scratch."""


class Given(NamedTuple):
    """A folder that the recipe names to begin with, or to be shaped like."""

    folder: Path
    model: Model
    """What the folder holds, without memory for its weights."""
    tokenizer: Tokenizer
    trained: bool
    """Whether training begins with its weights, not just its shape."""


def find_given(section: StartSection, head: str) -> Given | None:
    """The folder that the recipe names, with all checks that need no labels; None if it names none."""
    if not section.init and not is_remote(section.like) and not Path(section.like).is_dir():
        return None
    folder = resolve(section.init or section.like)
    given = Given(folder, load_outline(folder), load_tokenizer(folder), trained=bool(section.init))
    check_vocabulary(given.tokenizer, given.model.config.vocab_size, folder)
    if given.trained:
        check_head(given.model, folder, "bare", "masked-lm", head)
    return given


def adapt(recipe: FinetuneRecipe, given: Given, labeled: Labeled) -> Given:
    """Continue pretraining on the text of the training sentences, as its own run inside the run, which resumes as
    every run does. One that was asked to stop ends the process with its exit code."""
    from bertkit.pretrain.train import pretrain

    folder = Path(recipe.run.dir)
    text = folder / "adapted.txt"
    written = "".join(f"{line}\n" for line in _running_text(labeled.train)).encode(errors="replace")
    if not text.is_file() or text.read_bytes() != written:
        durable.replace_file(text, written)
    train = recipe.train
    changes = {
        "model.init": given.folder,
        "data.corpus": text,
        "data.errors": "replace",
        "data.cache_dir": folder / ".cache",
        "data.seq_len": min(128, given.model.config.max_position_embeddings),
        "tokenizer.extend": 0,
        **({"train.steps": train.adapt_steps} if train.adapt_steps else {"train.minutes": train.adapt_minutes}),
        "train.global_batch": 16,
        "train.precision": train.precision,
        "optim.lr": recipe.optim.lr,
        "optim.schedule": "linear",
        "run.dir": folder / "adapted",
        "run.deterministic": str(recipe.run.deterministic).lower(),
    }
    exit_code = pretrain(read_recipe("continued", [f"{key}={value}" for key, value in changes.items()]))
    if exit_code:
        raise SystemExit(exit_code)
    return given._replace(folder=resolve(folder / "adapted"))


def _running_text(sentences: Iterable[Sentence]) -> Iterator[str]:
    """A line for each sentence, a blank one before each document; a sentence that follows none is a document."""
    for sentence in sentences:
        if not sentence.follows:
            yield ""
        yield _line(sentence)


def check_labels(given: Given | None, labels: tuple[str, ...]) -> None:
    """A head that was trained before keeps its own labels."""
    own = given.model.labels if given is not None and given.trained else ()
    if given is not None and own and own != labels:
        odd = sorted(set(own) ^ set(labels)) or ["their order"]
        raise ValueError(
            f"{given.folder} has a head for {len(own)} labels, but the data has {len(labels)} "
            f"({', '.join(odd[:3])} in only one of them); name an encoder without a head in model.init"
        )


def find_start(given: Given | None, like: str, task: Task, labeled: Labeled, folder: Path, say: Callable) -> Start:
    """What the recipe begins with: a model that was found, or one from scratch."""
    if given is None:
        config, tokenizer = _shape_of_recipe(like, task.vocabulary(labeled), folder, say)
    else:
        config, tokenizer = given.model.config, given.tokenizer

    head = task.head

    def build(seed: int, outline: bool = False) -> ModelWithHead:
        encoder_seed, head_seed = (fold(seed, index) % 2**63 for index in range(2))
        model: Model = outline_encoder(config, encoder_seed)
        if given is not None and given.trained:
            model = open_model(given.folder)
        if not outline:
            fill(model)
        if isinstance(model, ModelWithHead) and model.kind == head:
            return model
        model.encoder.config = _without_task(model.encoder.config)
        labels = [labeled.labels] if labeled.labels else []
        return HEADS[head](model.encoder, *labels, head_seed)

    fingerprint = files_hash(given.folder.glob("*.safetensors")) if given is not None and given.trained else ""
    return Start(tokenizer, config, build, fingerprint)


def _without_task(config: EncoderConfig) -> EncoderConfig:
    """The config without what it carries of the task that an earlier head had."""
    of_task = ("finetuning_task", "id2label", "label2id", "num_labels", "problem_type", "task_specific_params")
    return replace(config, carried={key: value for key, value in config.carried.items() if key not in of_task})


def _shape_of_recipe(like: str, vocabulary: Vocabulary, folder: Path, say: Callable) -> tuple[EncoderConfig, Tokenizer]:
    """The shape that a pretraining recipe gives its encoder, and a tokenizer made of the training sentences."""
    model, tokenizer_section = read_sections(like, "model", "tokenizer")
    if model.init is not None:
        raise ValueError(f"model.like={like} continues a model and has no shape of its own; name that model's folder")
    place = folder / "tokenizer"
    with locked(folder / ".tokenizer.lock", wait=True):
        if not place.is_dir():
            say(f"training a {vocabulary.kind or tokenizer_section.kind} tokenizer on the training sentences")
            _make_tokenizer(vocabulary, part(tokenizer_section, TokenizerConfig), place)
    tokenizer = load_tokenizer(place)
    return model.encoder_config(tokenizer.vocab_size, tokenizer.special.pad_id), tokenizer


def _make_tokenizer(vocabulary: Vocabulary, config: TokenizerConfig, folder: Path) -> None:
    with durable.replacing_folder(folder) as unfinished:
        if vocabulary.kind:
            unit_tokenizer(vocabulary.kind, vocabulary.texts, vocabulary.tokens).save(unfinished)
            return
        text = unfinished / "sentences.txt"
        lines = (" ".join(line.split()) for line in vocabulary.texts)
        durable.write_file(text, "".join(f"{line}\n" for line in lines).encode(errors="replace"))
        train_tokenizer(CorpusConfig(corpus=[str(text)], documents="line", errors="replace"), config, unfinished)
        text.unlink()


def _line(sentence: Sentence) -> str:
    return " ".join(" ".join(sentence.words).split())

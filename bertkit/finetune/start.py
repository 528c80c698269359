"""A recipe enters; the tokenizer and a model to begin with leave: pretrained, or from scratch in a given shape."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import bertkit
from bertkit.config.fields import part
from bertkit.config.finetune import FinetuneRecipe
from bertkit.config.recipe import read_sections
from bertkit.finetune.data import Labeled
from bertkit.hf import Model, load_outline
from bertkit.hf.folder import HUB_PREFIX, resolve
from bertkit.hf.matching import check_head, check_vocabulary
from bertkit.model import SequenceClassifier, TokenTagger, build_encoder
from bertkit.model.config import EncoderConfig
from bertkit.run.lock import locked
from data_pipelines import durable
from data_pipelines.labels.tagged import Sentence
from data_pipelines.masks.keyed import fold
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import Tokenizer, load_tokenizer, train_tokenizer

Head = TokenTagger | SequenceClassifier


class Start(NamedTuple):
    tokenizer: Tokenizer
    build: Callable[[int], Head]
    """The model at step 0, a function of the seed."""
    fingerprint: str
    """Tells apart what training begins with; empty from scratch."""

    def facts(self, labeled: Labeled) -> dict[str, str]:
        """What must not change while a run goes on."""
        return {"labeled": labeled.fingerprint, "tokenizer": self.tokenizer.fingerprint, "init": self.fingerprint}


class Given(NamedTuple):
    """A folder that the recipe names to begin with, or to be shaped like."""

    folder: Path
    model: Model
    """What the folder holds, without memory for its weights."""
    tokenizer: Tokenizer


def find_given(recipe: FinetuneRecipe) -> Given | None:
    """The folder that the recipe names, checked as far as that goes before labels are read; None if it names none."""
    like = recipe.model.like
    if not recipe.model.init and not like.startswith(HUB_PREFIX) and not Path(like).is_dir():
        return None
    folder = resolve(recipe.model.init or like)
    given = Given(folder, load_outline(folder), load_tokenizer(folder))
    check_vocabulary(given.tokenizer, given.model.config.vocab_size, folder)
    if recipe.model.init:
        check_head(given.model, folder, "bare", "masked-lm", _head_of(recipe).kind)
    return given


def check_labels(recipe: FinetuneRecipe, given: Given | None, labels: tuple[str, ...]) -> None:
    """A head that is there already goes on only with its own labels."""
    if given is None or not recipe.model.init or not given.model.labels:
        return
    own = given.model.labels
    if own != labels:
        odd = sorted(set(own) ^ set(labels)) or ["their order"]
        raise ValueError(
            f"{given.folder} has a head for {len(own)} labels, but the data has {len(labels)} "
            f"({', '.join(odd[:3])} in one of the two only); name an encoder without a head in model.init"
        )


def find_start(recipe: FinetuneRecipe, given: Given | None, labeled: Labeled, say: Callable[[str], None]) -> Start:
    """What the recipe begins with: a model that was found, or one from scratch."""
    head = _head_of(recipe)
    if given is not None and recipe.model.init:
        return _pretrained(given, labeled, head)
    if given is not None:
        config, tokenizer = given.model.config, given.tokenizer
    else:
        config, tokenizer = _shape_of_recipe(recipe, labeled, say)

    def build(seed: int) -> Head:
        encoder_seed, head_seed = _seeds(seed)
        return head(build_encoder(config, encoder_seed), labeled.labels, head_seed)

    return Start(tokenizer, build, "")


def _head_of(recipe: FinetuneRecipe) -> type[Head]:
    return TokenTagger if recipe.task == "tagging" else SequenceClassifier


def _pretrained(given: Given, labeled: Labeled, head: type[Head]) -> Start:
    def build(seed: int) -> Head:
        model = bertkit.load(given.folder)
        if isinstance(model, head):
            return model
        return head(model.encoder, labeled.labels, _seeds(seed)[1])

    return Start(given.tokenizer, build, _sha256(given.folder.glob("*.safetensors")))


def _shape_of_recipe(
    recipe: FinetuneRecipe, labeled: Labeled, say: Callable[[str], None]
) -> tuple[EncoderConfig, Tokenizer]:
    model, trained_like = read_sections(recipe.model.like, "model", "tokenizer")
    if model.init is not None:
        raise ValueError(f"model.like={recipe.model.like} goes on from a folder and has no shape; name that folder")
    folder = Path(recipe.run.dir) / "tokenizer"
    with locked(folder.with_name(".tokenizer.lock"), wait=True):
        if not folder.is_dir():
            say(f"training a {trained_like.kind} tokenizer on the training sentences")
            _train_tokenizer(labeled.train, part(trained_like, TokenizerConfig), folder)
    tokenizer = load_tokenizer(folder)
    return model.encoder_config(tokenizer.vocab_size, tokenizer.special.pad_id), tokenizer


def _train_tokenizer(sentences: Iterable[Sentence], config: TokenizerConfig, folder: Path) -> None:
    with durable.replacing_folder(folder) as unfinished:
        text = unfinished / "sentences.txt"
        lines = (" ".join(" ".join(sentence.words).split()) for sentence in sentences)
        text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="replace")
        train_tokenizer(CorpusConfig(corpus=[str(text)], documents="line", errors="replace"), config, unfinished)
        text.unlink()


def _seeds(seed: int) -> tuple[int, int]:
    encoder_seed, head_seed = (fold(seed, index) % 2**63 for index in range(2))
    return encoder_seed, head_seed


def _sha256(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()

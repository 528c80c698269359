"""Tokenizers: trained on a corpus, or opened from any tokenizer.json or Hugging Face folder."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from data_pipelines import durable
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.sample import Counted, sample, untrained
from data_pipelines.vocab.settings import Settings, read_settings, write_settings, write_vocabulary
from data_pipelines.vocab.tokenizer_file import find_tokenizer
from data_pipelines.vocab.vocabulary import SPELLINGS, id_by_spelling, special_ids_of

SPECIAL_TOKENS = [bert for bert, _ in SPELLINGS.values()]
"""In the order of their ids: [PAD] is 0."""

_ROLES = tuple(SPELLINGS)


@dataclass(frozen=True)
class SpecialIds:
    """The special tokens by role; None where a tokenizer has none."""

    pad_id: int | None
    unk_id: int | None
    cls_id: int | None
    sep_id: int | None
    mask_id: int | None
    special_ids: frozenset[int]


_NO_SETTINGS = Settings()


class Tokenizer:
    """A `tokenizers.Tokenizer` with its special tokens known by role, and no padding or truncation of its own."""

    def __init__(
        self, backend: Backend, special: SpecialIds, max_length: int | None = None, settings: Settings = _NO_SETTINGS
    ):
        backend.no_padding()
        backend.no_truncation()
        self.backend, self.special, self.max_length, self.settings = backend, special, max_length, settings

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self.backend.get_vocab().values()) + 1

    @property
    def pads_left(self) -> bool:
        """Whether its folder asks for padding before the text."""
        side = (self.settings.padding or {}).get("direction")
        return self.settings.values().get("padding_side", side) == "left"

    @cached_property
    def fingerprint(self) -> str:
        """Different for any two tokenizers that give different ids."""
        roles = [getattr(self.special, f"{role}_id") for role in _ROLES]
        return hashlib.sha256(f"{roles}{self.backend.to_str()}".encode()).hexdigest()

    def save(self, folder: Path | str, *, token_types: bool | None = None, max_length: int | None = None) -> None:
        """Write the files that `load_tokenizer` and transformers' `AutoTokenizer` open, with every setting that the
        folder had which it was loaded from. `token_types` says whether the model next to it has any, and `max_length`
        how long its longest text is, for a tokenizer that does not say so itself."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = {
            f"{role}_token": str(self.backend.id_to_token(index))
            for role in _ROLES
            if (index := getattr(self.special, f"{role}_id")) is not None
        }
        as_loaded = Backend.from_str(self.backend.to_str())
        if self.settings.padding is not None:
            as_loaded.enable_padding(**self.settings.padding)
        if self.settings.truncation is not None:
            as_loaded.enable_truncation(**self.settings.truncation)
        durable.replace_file(folder / "tokenizer.json", as_loaded.to_str(pretty=True).encode())
        write_settings(self.settings, names, folder, token_types, self.max_length or max_length)
        write_vocabulary(self.backend, folder)


def train_tokenizer(
    corpus: CorpusConfig,
    config: TokenizerConfig,
    folder: Path | str,
    report: Callable[[int, int | None], None] = lambda done, total: None,
) -> Tokenizer:
    """Train on a sample of the corpus and save to `folder`. `report` gets the bytes read so far and in all."""
    counted = Counted()
    if config.kind == "wordpiece":
        counted.add_letters(sample(corpus, config, report=report), untrained(config))
    return _train(corpus, config, folder, counted, sample(corpus, config, report=report), untrained(config))


def train_on_counts(corpus: CorpusConfig, config: TokenizerConfig, folder: Path | str, counted: Counted) -> Tokenizer:
    """Train on the words of the sample, counted in parts: the same tokenizer as from the text itself."""
    by_spaces = Backend(untrained(config).model)
    by_spaces.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    return _train(corpus, config, folder, counted, counted.repeated_words(), by_spaces)


def _train(
    corpus: CorpusConfig,
    config: TokenizerConfig,
    folder: Path | str,
    counted: Counted,
    texts: Iterator[str],
    backend: Backend,
) -> Tokenizer:
    """`backend` splits the texts into the words to learn from."""
    first = next(texts, None)
    if first is None:
        raise ValueError(f"the corpus {', '.join(corpus.corpus)} holds no text to train a tokenizer on")
    trainer = _wordpiece_trainer(config, counted) if config.kind == "wordpiece" else _bpe_trainer(config)
    backend.train_from_iterator(chain([first], texts), trainer)
    trained = untrained(config)
    if config.kind == "wordpiece":
        trained.model = models.WordPiece(backend.get_vocab(), unk_token="[UNK]", max_input_chars_per_word=100)
        trained.decoder = decoders.WordPiece(prefix="##")
    else:
        trained.model = backend.model
        trained.decoder = decoders.ByteLevel()
    trained.add_special_tokens(SPECIAL_TOKENS)
    tokenizer = framed(trained)
    tokenizer.save(folder)
    return tokenizer


def framed(backend: Backend) -> Tokenizer:
    """The tokenizer of a new backend, which puts every text between [CLS] and [SEP]."""
    _frame(backend)
    return Tokenizer(backend, _special_ids(backend, {}))


def load_tokenizer(path: Path | str) -> Tokenizer:
    """Open a tokenizer.json, a folder that holds one, ours or Hugging Face's, or BERT's vocab.txt alone."""
    file = find_tokenizer(Path(path))
    settings = read_settings(file.parent)
    values = settings.values()
    backend = _from_vocabulary(file, values) if file.name == "vocab.txt" else _from_json(file)
    if not backend.get_vocab_size():
        raise ValueError(f"{file} has an empty vocabulary")
    _check_double_ids(backend, file)
    settings = settings._replace(padding=backend.padding, truncation=backend.truncation)
    # Where there is no limit, transformers writes a huge number.
    limit = values.get("model_max_length")
    max_length = int(limit) if isinstance(limit, (int, float)) and 0 < limit < 2**31 else None
    return Tokenizer(backend, _special_ids(backend, values), max_length, settings)


def check_no_gaps(tokenizer: Tokenizer, path: Path) -> None:
    """Refuse a vocabulary with ids that no token has, for a model that would get weights for them."""
    ids = set(tokenizer.backend.get_vocab().values())
    if len(ids) < tokenizer.vocab_size:
        gap = next(index for index in range(tokenizer.vocab_size) if index not in ids)
        raise ValueError(
            f"{path} has {len(ids):,} tokens, but ids up to {tokenizer.vocab_size - 1}; the first unused id is "
            f"{gap}. Number the tokens from 0 without gaps"
        )


def _check_double_ids(backend: Backend, file: Path) -> None:
    token_of: dict[int, str] = {}
    for token, index in backend.get_vocab().items():
        if token_of.setdefault(index, token) != token:
            raise ValueError(f"{file}: {token_of[index]!r} and {token!r} have the same id {index}; give each its own")


def _frame(backend: Backend) -> None:
    """Put every text between [CLS] and [SEP]."""
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )


def _from_json(file: Path) -> Backend:
    try:
        return Backend.from_file(str(file))
    except Exception as error:  # the library raises a bare Exception
        raise ValueError(f"{file} is not a tokenizer that the tokenizers library can read: {error}") from None


def _from_vocabulary(file: Path, settings: dict[str, Any]) -> Backend:
    """BERT's tokenizer from its vocabulary, one token a line; case is folded unless tokenizer_config.json says no."""
    try:
        tokens = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error}") from None
    vocabulary = {token.rstrip("\r"): index for index, token in enumerate(tokens)}
    if missing := [name for name in SPECIAL_TOKENS if name not in vocabulary]:
        raise ValueError(f"{file} lacks {' '.join(missing)}: this vocab.txt alone is not enough for a BERT tokenizer")
    backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    for key in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        if not isinstance(settings.get(key, True), bool):
            raise ValueError(f"{file.parent}: {key} must be true or false, got {str(settings[key])[:80]!r}")
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.add_special_tokens(SPECIAL_TOKENS)
    _frame(backend)
    return backend


def _wordpiece_trainer(config: TokenizerConfig, counted: Counted) -> trainers.WordPieceTrainer:
    """The library numbers single characters in the order of a hash table, which differs in every process, and breaks
    ties by these numbers. So the characters are counted first and passed in sorted order."""
    letters = counted.letters
    # The rarest characters of a large script stay unknown: they must not fill the vocabulary.
    most = max(1, config.vocab_size // 4)
    kept = sorted(sorted(letters, key=lambda letter: (-letters[letter], letter))[:most])
    return trainers.WordPieceTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=SPECIAL_TOKENS + [f"##{letter}" for letter in kept if letter in counted.inside],
        initial_alphabet=kept,
        limit_alphabet=len(kept),
        show_progress=False,
    )


def _bpe_trainer(config: TokenizerConfig) -> trainers.BpeTrainer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if config.vocab_size < len(SPECIAL_TOKENS) + len(alphabet):
        raise ValueError(f"vocab_size must be at least 261 for bpe (256 bytes, 5 special), got {config.vocab_size}")
    return trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=alphabet,
        show_progress=False,
    )


def _special_ids(backend: Backend, settings: dict[str, Any]) -> SpecialIds:
    tokens = backend.get_vocab()

    def known(name: Any) -> int | None:
        name = name.get("content") if isinstance(name, dict) else name
        return tokens.get(name) if isinstance(name, str) else None

    by_role = {}
    for role in _ROLES:
        index = known(settings.get(f"{role}_token"))
        by_role[role] = id_by_spelling(role, tokens) if index is None else index
    further = [
        known(name)
        for key in ("bos_token", "eos_token", "additional_special_tokens", "extra_special_tokens")
        for name in _listed(settings.get(key))
    ]
    special = special_ids_of(backend, tokens) | {i for i in (*by_role.values(), *further) if i is not None}
    return SpecialIds(**{f"{role}_id": index for role, index in by_role.items()}, special_ids=frozenset(special))


def _listed(names: Any) -> list[Any]:
    """Further special tokens are a list, or named by a dict; an AddedToken is a dict itself."""
    if isinstance(names, dict) and "content" not in names:
        return list(names.values())
    return names if isinstance(names, list) else [names]

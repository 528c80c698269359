"""CoNLL-U: the syntactic words of Universal Dependencies."""

import re
from collections.abc import Iterable, Iterator

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.formats.conll import column_of
from data_pipelines.labels.sentence import Sentence, checked_tag
from data_pipelines.text.lines import Line

COLUMNS = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]


def read_conllu(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    """The sentences. Lines for multiword ranges (3-4) and empty nodes (3.1) hold no word of their own and are
    skipped."""
    word_at = column_of(config.word_column or "form", COLUMNS, len(COLUMNS), "word_column", source)
    name, _, key = (config.tag_column or "upos").partition(":")
    tag_at = column_of(name, COLUMNS, len(COLUMNS), "tag_column", source)
    sentence = Sentence([], [] if tagged else None, source, [])
    text, spaces = None, list[str]()
    for line, number, _ in lines:
        if not line.strip():
            if sentence.words:
                yield sentence._replace(text=text or _written(sentence.words, spaces))
            sentence, text, spaces = Sentence([], [] if tagged else None, source, []), None, []
            continue
        if line.startswith("#"):
            if line.startswith("# text ="):
                text = line.partition("=")[2].strip()
            continue
        cells = line.split("\t")
        if len(cells) != len(COLUMNS):
            raise ValueError(f"{source}:{number}: {len(cells)} columns where CoNLL-U has {len(COLUMNS)}")
        if not cells[0].isdecimal():
            if re.fullmatch(r"\d+[-.]\d+", cells[0]):
                continue
            raise ValueError(f"{source}:{number}: the first column must number the word, got {cells[0]!r}")
        sentence.words.append(cells[word_at])
        sentence.lines.append(number)
        spaces.append("" if "SpaceAfter=No" in cells[9].split("|") else " ")
        if sentence.tags is not None:
            tag = _inner_value(cells[tag_at], key) if key else checked_tag(cells[tag_at], f"{source}:{number}")
            sentence.tags.append(tag)
    if sentence.words:
        yield sentence._replace(text=text or _written(sentence.words, spaces))


def _written(words: list[str], spaces: list[str]) -> str | None:
    """The running text, where the words say what follows them."""
    text = "".join(word + space for word, space in zip(words, spaces, strict=True))
    return text.strip() if "" in spaces else None


def _inner_value(value: str, key: str) -> str:
    """The value of one key of FEATS or MISC; _ where the word has none."""
    for part in value.split("|"):
        name, _, inner = part.partition("=")
        if name == key:
            return inner
    return "_"


CONLLU = LabelFormat(sentences=read_conllu)

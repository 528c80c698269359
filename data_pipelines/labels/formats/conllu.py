"""CoNLL-U: the syntactic words of Universal Dependencies."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import Fill, LabelFormat
from data_pipelines.labels.formats.conll import column_of, one_line
from data_pipelines.labels.schemes import OUTSIDE, parse
from data_pipelines.labels.sentence import Sentence, check_word, checked_tag
from data_pipelines.text.lines import Line

COLUMNS = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]


def read_conllu(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    """The sentences. Lines for multiword ranges (3-4) and empty nodes (3.1) hold no word of their own and are
    skipped."""
    word_at = column_of(config.word_column or "form", COLUMNS, len(COLUMNS), "word_column", source)
    tag_at, key = _tag_column(config.tag_column or "upos", source)
    sentence = Sentence([], [] if tagged else None, source, [])
    text, spaces, follows = None, list[str](), False
    for line, number, _ in lines:
        if not line.strip():
            if sentence.words:
                yield sentence._replace(text=text or _written(sentence.words, spaces), follows=follows)
                follows = True
            sentence, text, spaces = Sentence([], [] if tagged else None, source, []), None, []
            continue
        if line.startswith("#"):
            if line.startswith("# text ="):
                text = line.partition("=")[2].strip()
            follows &= not line.startswith("# newdoc")
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
            check_word(cells[word_at], f"{source}:{number}")
            tag = _inner_value(cells[tag_at], key) if key else checked_tag(cells[tag_at], f"{source}:{number}")
            sentence.tags.append(tag)
    if sentence.words:
        yield sentence._replace(text=text or _written(sentence.words, spaces), follows=follows)


def _written(words: list[str], spaces: list[str]) -> str | None:
    """The running text, where the words say what follows them."""
    text = "".join(word + space for word, space in zip(words, spaces, strict=True))
    return text.strip() if "" in spaces else None


def fill_conllu(config: TaggedConfig, labels: Collection[str]) -> Fill:
    """Puts tags into their column, or under their key of FEATS or MISC."""
    tag_at, key = _tag_column(config.tag_column or "upos", "")

    def fill(lines: Sequence[Line], sentence: Sentence) -> Iterator[str]:
        tags = dict(zip(sentence.lines, sentence.tags or (), strict=True))
        for text, number, _ in lines:
            yield _filled(text, tag_at, key, tags[number]) if number in tags else text
        if lines[-1].text.strip():
            yield ""  # the file ends without the blank line that ends a sentence

    return fill


def write_conllu(sentences: Iterable[Sentence], config: TaggedConfig) -> Iterator[str]:
    """Word and tag, and the text where it is known."""
    for sentence in sentences:
        tags = sentence.tags or []
        tag_at, key = _tag_column(config.tag_column or usual_column(tags), sentence.source)
        if sentence.text is not None:
            yield f"# text = {one_line(sentence.text)}\n"
        starts = {start for start, _ in sentence.offsets or ()}
        ends = [end for _, end in sentence.offsets or ()] or [-1] * len(tags)
        for number, (word, tag, end) in enumerate(zip(sentence.words, tags, ends, strict=True), start=1):
            misc = "SpaceAfter=No" if end in starts else "_"
            row = "\t".join([str(number), one_line(word) or "_", *["_"] * 7, misc])
            yield _filled(row, tag_at, key, tag) + "\n"
        yield "\n"


def usual_column(tags: Collection[str]) -> str:
    """Where such tags stand if nothing else is said: spans as NER=... in MISC, plain ones as UPOS."""
    return "misc:NER" if all(map(parse, tags)) else "upos"


def _tag_column(wanted: str, source: str) -> tuple[int, str]:
    """The column with the tags, and the key inside it, if any."""
    name, _, key = wanted.partition(":")
    return column_of(name, COLUMNS, len(COLUMNS), "tag_column", source), key


def _inner_value(value: str, key: str) -> str:
    """The value of one key of FEATS or MISC; _ where the word has none."""
    return dict(part.partition("=")[::2] for part in value.split("|")).get(key, "_")


def _filled(text: str, tag_at: int, key: str, tag: str) -> str:
    cells = text.split("\t")
    if not key:
        cells[tag_at] = tag
    elif tag not in (OUTSIDE, "_") or _inner_value(cells[tag_at], key) != "_":
        parts = [] if cells[tag_at] == "_" else cells[tag_at].split("|")
        at = next((index for index, part in enumerate(parts) if part.partition("=")[0] == key), len(parts))
        parts[at : at + 1] = [f"{key}={tag}"]
        in_order = COLUMNS[tag_at] == "feats"  # which must be sorted
        cells[tag_at] = "|".join(sorted(parts, key=str.lower) if in_order else parts)
    return "\t".join(cells)


CONLLU = LabelFormat(sentences=read_conllu, filler=fill_conllu, write=write_conllu, usual_column=usual_column)

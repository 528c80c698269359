"""spaCy: a DocBin (.spacy) of documents, read sentence by sentence where they have sentences."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.placing import placed
from data_pipelines.labels.schemes import Span, iob2_tags, parse, to_iob2
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.lines import Line


def read_docs(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    """The file is binary, so it is opened here and not read by lines. Tags are entities, or what tag_column names:
    tag or pos."""
    spacy = _spacy()
    docs = spacy.tokens.DocBin().from_bytes(Path(source).read_bytes())
    for number, doc in enumerate(docs.get_docs(spacy.vocab.Vocab()), start=1):
        for index, part in enumerate(doc.sents if doc.has_annotation("SENT_START") else [doc[:]]):
            tokens = [token for token in part if not token.is_space]
            tags = _tags(part, tokens, config.tag_column or "ents", f"{source}:{number}") if tagged else None
            text = doc.text[tokens[0].idx : tokens[-1].idx + len(tokens[-1].text)] if tokens else ""
            words, places = [token.text for token in tokens], [number] * len(tokens)
            yield Sentence(words, tags, source, places, text, follows=index > 0)


def write_docs(sentences: Iterable[Sentence], config: TaggedConfig) -> Iterator[bytes]:
    """One document a sentence: span tags as entities, plain tags as tag."""
    spacy = _spacy()
    docs = spacy.tokens.DocBin()
    vocab = spacy.vocab.Vocab()
    for sentence in map(placed, sentences):
        tags, places = sentence.tags or [], sentence.offsets or []
        spaces = [end < start for (_, end), (start, _) in pairwise(places)] + [False] * bool(places)
        given = {"ents": to_iob2(tags)} if all(map(parse, tags)) else {"tags": tags}
        docs.add(spacy.tokens.Doc(vocab, words=sentence.words, spaces=spaces, **given))
    yield docs.to_bytes()


def _tags(part: Any, tokens: list[Any], column: str, place: str) -> list[str]:
    if column == "ents":
        at = {token.i: index for index, token in enumerate(tokens)}
        inside = [[at[token.i] for token in entity if token.i in at] for entity in part.ents]
        spans = [Span(entity.label_, words[0], words[-1] + 1) for entity, words in zip(part.ents, inside, strict=True)]
        return iob2_tags(spans, len(tokens))
    if column not in ("tag", "pos"):
        raise ValueError(f"{place}: tag_column={column}, but a .spacy file has ents, tag and pos")
    return [getattr(token, f"{column}_") for token in tokens]


def _spacy() -> Any:
    try:
        import spacy.tokens
        import spacy.vocab
    except ImportError:
        raise ValueError("a .spacy file needs spaCy; install it with: pip install 'bertkit[spacy]'") from None
    return spacy


SPACY = LabelFormat(sentences=read_docs, write=write_docs)

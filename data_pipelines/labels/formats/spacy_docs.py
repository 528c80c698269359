"""spaCy: a DocBin (.spacy) of documents, read sentence by sentence where they have sentences."""

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.placing import placed
from data_pipelines.labels.schemes import OUTSIDE, parse, spans_of, to_iob2
from data_pipelines.labels.sentence import Sentence, checked_tag
from data_pipelines.text.lines import Line, open_bytes

_ENTITIES = "ents"
_ATTRIBUTES = {"tag": "tag_", "xpos": "tag_", "pos": "pos_", "upos": "pos_"}
"""Where a token has its tag, by the names of columns of spaCy and of Universal Dependencies."""
_UPOS = {
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
}
"""What spaCy allows as pos."""


def read_docs(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    """The file is binary, so it is opened here and not read by lines. Tags are entities, or what tag_column names:
    tag or pos. White space is no word."""
    column = (config.tag_column or _ENTITIES) if tagged else ""
    for number, doc in enumerate(_docs(source), start=1):
        try:
            sentences = [_sentence(part, source, number, column) for part in _sentences(doc, tagged)]
        except LookupError as error:  # spaCy looks for a string only when it is asked for
            raise _damaged(source, error) from None
        yield from (sentence._replace(follows=index > 0) for index, sentence in enumerate(sentences))


def write_docs(sentences: Iterable[Sentence], config: TaggedConfig) -> Iterator[bytes]:
    """Documents of a .spacy file come back with nothing but the tags changed; a sentence of any other file becomes a
    document. Span tags are entities, those of Universal Dependencies pos, others tag."""
    spacy = _spacy()
    docs, vocab = spacy.tokens.DocBin(store_user_data=True), spacy.vocab.Vocab()
    native = (sentence if sentence.native is not None else _new_doc(sentence, vocab) for sentence in sentences)
    for doc, group in groupby(native, lambda sentence: sentence.native.doc):
        parts = [(sentence.native, sentence.tags or []) for sentence in group]
        column = config.tag_column or usual_column([tag for _, tags in parts for tag in tags])
        if sum(len(part) for part, _ in parts) == len(doc):
            docs.add(_tagged_doc(doc, parts, column))
        else:  # only some of its sentences were chosen
            for part, tags in parts:
                alone = part.as_doc()
                docs.add(_tagged_doc(alone, [(alone[:], tags)], column))
    yield docs.to_bytes()


def usual_column(tags: Collection[str]) -> str:
    """Where such tags stand if nothing else is said."""
    return _ENTITIES if all(map(parse, tags)) else "pos" if _UPOS.issuperset(tags) else "tag"


def _docs(source: str) -> Iterator[Any]:
    spacy = _spacy()
    with open_bytes(Path(source)) as stream:
        data = stream.read()
    try:
        yield from spacy.tokens.DocBin().from_bytes(data).get_docs(spacy.vocab.Vocab())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(source, error) from None


def _damaged(source: str, error: Exception) -> ValueError:
    return ValueError(f"{source}: damaged, or not a DocBin of spaCy ({type(error).__name__})")


def _sentences(doc: Any, tagged: bool) -> Iterator[Any]:
    """The sentences of a document. A border inside a labeled entity is a slip, and the entity stays whole."""
    starts = [token.i for token in doc if token.i and token.is_sent_start and not (tagged and token.ent_iob_ == "I")]
    return (doc[start:end] for start, end in pairwise([0, *starts, len(doc)]))


def _words(part: Any) -> list[Any]:
    """The tokens without white space, which a vocabulary of no language does not mark."""
    return [token for token in part if not token.text.isspace()]


def _sentence(part: Any, source: str, number: int, column: str) -> Sentence:
    """With the tags of a column; without one, to be written again."""
    tokens = _words(part)
    text = part.doc[tokens[0].i : tokens[-1].i + 1].text if tokens else ""
    sentence = Sentence([token.text for token in tokens], None, source, [number] * len(tokens), text)
    if not column:
        return sentence._replace(native=part)
    return sentence._replace(tags=_tags(part.doc, tokens, column, f"{source}:{number}"))


def _tags(doc: Any, tokens: list[Any], column: str, place: str) -> list[str]:
    if column in _ATTRIBUTES:
        return [checked_tag(getattr(token, _ATTRIBUTES[column]), place) for token in tokens]
    if column != _ENTITIES:
        raise ValueError(f"{place}: tag_column={column}, but a .spacy file has ents, tag and pos")
    if not doc.has_annotation("ENT_IOB", require_complete=True):
        raise ValueError(f"{place}: some words have no entity label, not even O; set doc.ents or data.tag_column")
    tags = [OUTSIDE if token.ent_iob_ == OUTSIDE else f"{token.ent_iob_}-{token.ent_type_}" for token in tokens]
    return to_iob2(tags)


def _new_doc(sentence: Sentence, vocab: Any) -> Sentence:
    """The sentence as a document of its text, in which all but single spaces between words is a token. A word of white
    space alone, or of nothing, is none in spaCy, and its tag is left out."""
    sentence = placed(sentence)
    assert sentence.text is not None
    assert sentence.offsets is not None
    rows = zip(sentence.words, sentence.tags or (), sentence.offsets, strict=True)
    kept = [(tag, place) for word, tag, place in rows if word.strip()]
    words, spaces, at = list[str](), list[bool](), 0
    for start, end in [*(place for _, place in kept), (len(sentence.text),) * 2]:
        if words and sentence.text.startswith(" ", at, start):
            spaces[-1], at = True, at + 1
        pieces = [piece for piece in (sentence.text[at:start], sentence.text[start:end]) if piece]
        words += pieces
        spaces += [False] * len(pieces)
        at = end
    doc = _spacy().tokens.Doc(vocab, words=words, spaces=spaces)
    return sentence._replace(tags=[tag for tag, _ in kept], native=doc[:])


def _tagged_doc(doc: Any, parts: list[tuple[Any, list[str]]], column: str) -> Any:
    """The document with these tags, given sentence by sentence."""
    entities = []
    for part, tags in parts:
        tokens = _words(part)
        if column == _ENTITIES:
            spans = ((tokens[start].i, tokens[end - 1].i + 1, kind) for kind, start, end in spans_of(tags))
            entities += [_spacy().tokens.Span(doc, start, end, label=kind) for start, end, kind in spans]
        else:
            for token, tag in zip(tokens, tags, strict=True):
                setattr(token, _ATTRIBUTES[column], tag)
    if column == _ENTITIES:
        doc.set_ents(entities)
    return doc


def _spacy() -> Any:
    try:
        import spacy.tokens
        import spacy.vocab
    except ImportError:
        raise ValueError("a .spacy file needs spaCy; install it with: pip install 'bertkit[spacy]'") from None
    return spacy


SPACY = LabelFormat(sentences=read_docs, write=write_docs, usual_column=usual_column)

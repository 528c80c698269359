"""Token ids made elsewhere, as documents: compared with their tokenizer, freed of padding, [CLS] and [SEP]."""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

import numpy as np

from data_pipelines.rows.encode import Encoded
from data_pipelines.rows.shards import token_type
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import Document
from data_pipelines.text.ids import ids_of_text, text_of_ids
from data_pipelines.text.parts import WHOLE, Part, read_part
from data_pipelines.vocab.marks import word_mark
from data_pipelines.vocab.tokenizer import Tokenizer
from data_pipelines.vocab.words import word_table

_SHOWN_IDS = 24


def read_given(corpus: CorpusConfig, tokenizer: Tokenizer, part: Part = WHOLE) -> Iterator[Document]:
    """The documents of a corpus of ids: what lies between [CLS] and [SEP], which every row gets anew."""
    return _between_borders(read_part(corpus, part), tokenizer)


def first_words(corpus: CorpusConfig, tokenizer: Tokenizer) -> str:
    """What the first ids mean, by which people see whether they are of this tokenizer."""
    first = next(read_given(corpus, tokenizer), None)
    return "" if first is None else tokenizer.backend.decode(ids_of_text(first.text)[:_SHOWN_IDS].tolist())


def ids_encoder(tokenizer: Tokenizer) -> Callable[[list[Document]], Encoded]:
    """A function that encodes a batch of such documents. Words begin where the vocabulary shows it; where it does not,
    as of bytes, every token is a word."""
    vocabulary, id_type = tokenizer.backend.get_vocab(), token_type(tokenizer.vocab_size)
    table = word_table(vocabulary, tokenizer.vocab_size) if word_mark(vocabulary) else None

    def encode(batch: list[Document]) -> Encoded:
        lengths = [len(document.text) for document in batch]
        ids_T = ids_of_text("".join(document.text for document in batch)).astype(id_type)
        starts_word_T = table.starts(ids_T) if table else np.ones(len(ids_T), bool)
        starts_word_T[[end for end in accumulate(lengths) if end < len(ids_T)]] = True
        return Encoded(lengths, ids_T, starts_word_T)

    return encode


def _between_borders(documents: Iterable[Document], tokenizer: Tokenizer) -> Iterator[Document]:
    special = tokenizer.special
    for document in documents:
        ids = ids_of_text(document.text)
        if (unknown := ids[ids >= tokenizer.vocab_size]).size:
            raise ValueError(
                f"{document.place}: the id {unknown[0]} is not one of the {tokenizer.vocab_size:,} of the tokenizer; "
                "name the tokenizer that made the ids"
            )
        if (ids == special.mask_id).any():
            raise ValueError(
                f"{document.place}: the mask token ({special.mask_id}) is among the ids; give unmasked ids, "
                "or name the tokenizer that made them"
            )
        if special.pad_id is not None:
            ids = ids[ids != special.pad_id]
        borders = np.flatnonzero((ids == special.cls_id) | (ids == special.sep_id))
        starts, ends = np.append(0, borders + 1), np.append(borders, len(ids))
        continued = document.continued
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if start < end:
                yield document._replace(text=text_of_ids(ids[start:end]), continued=continued and start == 0)

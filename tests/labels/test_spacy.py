"""Documents of spaCy are read as they are labeled and written so that spaCy finds words, text and tags again.

Without spaCy (`make test-spacy`) nothing is shown.
"""

import gzip
import zlib

import pytest

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import format_named
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.tagged import read_tagged

spacy = pytest.importorskip("spacy", reason="spaCy is not installed, so .spacy files were not tried: make test-spacy")
Doc, DocBin = spacy.tokens.Doc, spacy.tokens.DocBin
VOCAB = spacy.blank("en").vocab


def save(path, *docs):
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    return path


def read(path, tagged=True, **settings):
    return list(read_tagged(str(path), TaggedConfig(**settings), tagged=tagged))


def written(sentences, **settings):
    (data,) = format_named("spacy").write(sentences, TaggedConfig(**settings))
    return data


def opened(data):
    return list(DocBin().from_bytes(data).get_docs(VOCAB))


def words_and_tags(sentences):
    return [(sentence.words, sentence.tags) for sentence in sentences]


def entities(doc):
    return [(entity.text, entity.label_, entity.start_char, entity.end_char) for entity in doc.ents]


def test_sentences_of_documents_are_read_with_their_text_and_without_white_space(tmp_path):
    words = ["Anna", " ", "Lind", "sang", ".", "\n", "She", "left", "."]
    doc = Doc(
        VOCAB,
        words=words,
        spaces=[True, False, True, False, False, False, True, False, False],
        ents=["B-PER", "I-PER", "I-PER", *["O"] * 6],
        sent_starts=[index in (0, 6) for index in range(9)],
    )
    first, second, last = read(save(tmp_path / "x.spacy", doc, Doc(VOCAB, words=[])))
    assert (first.words, first.text) == (["Anna", "Lind", "sang", "."], "Anna  Lind sang.")
    assert first.tags == ["B-PER", "I-PER", "O", "O"]
    assert (second.words, second.text, second.follows) == (["She", "left", "."], "She left.", True)
    assert (last.words, last.follows) == ([], False)


def test_an_entity_across_the_border_of_two_sentences_stays_whole(tmp_path):
    tags = ["B-PER", "I-PER", "O"]
    path = save(tmp_path / "x.spacy", Doc(VOCAB, words=["St.", "Anna", "sang"], ents=tags, sent_starts=[1, 1, 0]))
    assert words_and_tags(read(path)) == [(["St.", "Anna", "sang"], tags)]
    assert [sentence.words for sentence in read(path, tagged=False)] == [["St."], ["Anna", "sang"]]


def test_what_nobody_labeled_is_refused_and_not_taken_for_outside(tmp_path):
    path = save(tmp_path / "x.spacy", Doc(VOCAB, words=["a"], ents=["O"]), Doc(VOCAB, words=["a", "b"]))
    with pytest.raises(ValueError, match=r"x\.spacy:2.*tag_column"):
        read(path)
    half = save(tmp_path / "half.spacy", Doc(VOCAB, words=["a", "b"], ents=["B-X", ""]))
    with pytest.raises(ValueError, match=r"half\.spacy:1"):
        read(half)
    with pytest.raises(ValueError, match=r"x\.spacy:1.*empty"):
        read(path, tag_column="tag")
    with pytest.raises(ValueError, match="lemma"):
        read(path, tag_column="lemma")
    assert [sentence.words for sentence in read(path, tagged=False)] == [["a"], ["a", "b"]]


@pytest.mark.parametrize("column", ["tag", "xpos", "pos", "upos"])
def test_tags_are_found_by_the_names_of_spacy_and_of_universal_dependencies(tmp_path, column):
    path = save(tmp_path / "x.spacy", Doc(VOCAB, words=["Anna", "sang"], tags=["NNP", "VBD"], pos=["PROPN", "VERB"]))
    expected = ["PROPN", "VERB"] if column in ("pos", "upos") else ["NNP", "VBD"]
    assert words_and_tags(read(path, tag_column=column)) == [(["Anna", "sang"], expected)]


def test_packed_files_are_read_and_damaged_ones_refused_by_name(tmp_path):
    whole = save(tmp_path / "x.spacy", Doc(VOCAB, words=["a", "b"], ents=["B-Name", "O"])).read_bytes()
    (tmp_path / "x.spacy.gz").write_bytes(gzip.compress(whole))
    assert words_and_tags(read(tmp_path / "x.spacy.gz")) == [(["a", "b"], ["B-Name", "O"])]
    lost = zlib.compress(zlib.decompress(whole).replace(b"Name", b"None"))  # no string has the hash of the label
    for data in (lost, b"", b"\x00\xff", whole[:-9], zlib.compress(b"\x00\xff"), zlib.compress(b"\x80"), b"\x1f\x8b"):
        (tmp_path / "bad.spacy").write_bytes(data)
        with pytest.raises(ValueError, match=r"bad\.spacy"):
            read(tmp_path / "bad.spacy")


@pytest.mark.parametrize(
    ("text", "places", "tags", "expected"),
    [
        ("Zoë  sang\tin  Kraków .", [(0, 3), (5, 9), (10, 12), (14, 20), (21, 22)], "S-P O O B-L O", ["Zoë", "Kraków"]),
        ("  👩‍👩‍👧 ok\n", [(2, 7), (8, 10)], "B-X I-X", ["👩‍👩‍👧 ok"]),
        ("王小明在北京。", [(0, 3), (3, 4), (4, 6), (6, 7)], "B-P O B-L O", ["王小明", "北京"]),
        (" ", [], "", []),
        ("", [], "", []),
    ],
)
def test_a_document_is_its_text_with_every_place_in_it(tmp_path, text, places, tags, expected):
    words = [text[start:end] for start, end in places]
    data = written([Sentence(words, tags.split(), "", [], text, places)])
    (doc,) = opened(data)
    assert doc.text == text
    assert [entity.text for entity in doc.ents] == expected
    assert all(text[start:end] == entity for entity, _, start, end in entities(doc))
    (tmp_path / "x.spacy").write_bytes(data)
    (back,) = read(tmp_path / "x.spacy")
    assert back.words == words
    assert [tag[2:] for tag in back.tags] == [tag[2:] for tag in tags.split()]


def test_words_without_a_text_are_written_out_and_empty_ones_left_out():
    (doc,) = opened(written([Sentence(["New York", "", "sleeps", "."], ["B-X", "I-X", "O", "O"], "", [])]))
    assert [token.text for token in doc if not token.is_space] == ["New York", "sleeps", "."]
    assert entities(doc) == [("New York", "X", 0, 8)]


def test_plain_tags_of_universal_dependencies_are_pos_and_others_tag(tmp_path):
    ((first,), (second,), (third,)) = (
        opened(written([Sentence(["a", "b"], tags, "", [], " a b", [(1, 2), (3, 4)])], **settings))
        for tags, settings in ((["NOUN", "X"], {}), (["NOUN", "O"], {}), (["NOUN", "X"], {"tag_column": "tag"}))
    )
    assert ([token.pos_ for token in first], [token.tag_ for token in first]) == (["", "NOUN", "X"], ["", "", ""])
    assert ([token.pos_ for token in second], [token.tag_ for token in second]) == (["", "", ""], ["", "NOUN", "O"])
    assert [token.tag_ for token in third] == ["", "NOUN", "X"]


def rich_doc():
    doc = Doc(
        VOCAB,
        words=["Anna", "  ", "sang", ".", "Boris", "left"],
        spaces=[True, False, False, True, True, False],
        ents=["B-PER", "O", "O", "O", "B-OLD", "O"],
        lemmas=["Anna", "  ", "sing", ".", "Boris", "leave"],
        tags=["NNP", "_SP", "VBD", ".", "NNP", "VBD"],
        heads=[2, 2, 2, 2, 5, 5],
        deps=["nsubj", "dep", "ROOT", "punct", "nsubj", "ROOT"],
    )
    doc.cats, doc.user_data["id"] = {"sad": 1.0}, 7
    doc.spans["names"] = [doc[0:1], doc[4:5]]
    return doc


def kept(doc):
    facts = [(token.text, token.whitespace_, token.lemma_, token.dep_, token.head.i) for token in doc]
    spans = [(span.start, span.end) for span in doc.spans["names"]]
    return facts, doc.cats, doc.user_data["id"], spans, [sentence.text for sentence in doc.sents]


def test_a_document_comes_back_with_nothing_but_its_tags_changed(tmp_path):
    path = save(tmp_path / "x.spacy", Doc(VOCAB, words=[]), rich_doc())
    empty, first, second = read(path, tagged=False)
    given = [empty._replace(tags=[]), first._replace(tags=["O", "O", "O"]), second._replace(tags=["B-PER", "B-X"])]
    none, doc = opened(written(given))
    assert len(none) == 0
    assert kept(doc) == kept(rich_doc())
    assert [token.tag_ for token in doc] == [token.tag_ for token in rich_doc()]
    assert entities(doc) == [("Boris", "PER", 13, 18), ("left", "X", 19, 23)]
    plain = [first._replace(tags=["A", "B", "C"]), second._replace(tags=["D", "E"])]
    (doc,) = opened(written(plain))
    assert [token.tag_ for token in doc] == ["A", "_SP", "B", "C", "D", "E"]


def test_chosen_sentences_of_a_document_are_documents(tmp_path):
    _, second = read(save(tmp_path / "x.spacy", rich_doc()), tagged=False)
    (doc,) = opened(written([second._replace(tags=["B-PER", "O"])]))
    assert (doc.text, entities(doc)) == ("Boris left", [("Boris", "PER", 0, 5)])
    assert [token.lemma_ for token in doc] == ["Boris", "leave"]

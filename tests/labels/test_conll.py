"""CoNLL files (labels/formats/conll) are read word for word; what is wrong is said with file and line."""

import pytest
from labeling import read

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.tagged import read_tagged


@pytest.mark.parametrize("name", ["x.conll", "x.txt", "x.tsv", "x.conll.gz"])
@pytest.mark.parametrize("separator", ["\t", " "])
@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
def test_columns_are_read_with_tabs_and_spaces_with_and_without_a_final_blank_line(tmp_path, name, separator, end):
    text = f"Anna{separator}B-PER\nruns{separator}O\n\n\nHome{separator}O{end}"
    found = read(tmp_path / name, text)
    assert [(s.words, s.tags) for s in found] == [(["Anna", "runs"], ["B-PER", "O"]), (["Home"], ["O"])]
    assert found[1].place(0).endswith(f"{name}:5")


def test_columns_are_chosen_by_number_or_name(tmp_path):
    text = "1 Anna NNP B-NP B-PER\n2 runs VBZ B-VP O\n"
    columns = ["id", "word", "pos", "chunk", "ner"]
    path = tmp_path / "x.conll"
    assert read(path, text, word_column="2")[0].tags == ["B-PER", "O"]
    assert read(path, text, word_column="2", tag_column="-2")[0].tags == ["B-NP", "B-VP"]
    named = read(path, text, columns=columns, word_column="word", tag_column="POS")[0]
    assert (named.words, named.tags) == (["Anna", "runs"], ["NNP", "VBZ"])
    assert read(path, "# global.columns = FORM TAG NOTE\na X 1\n", tag_column="tag")[0].tags == ["X"]
    assert read(path, "Anna NOUN\nruns VERB\n", tag_column="upos")[0].tags == ["NOUN", "VERB"]


def test_document_starts_and_comments_are_passed_over_and_hashtags_are_words(tmp_path):
    text = "-DOCSTART- -X- O\n\n# sent_id = 3\n#yes NN O\n# NN O\n! . O\n\n#begin document x\na NN O\n"
    assert [s.words for s in read(tmp_path / "x.conll", text)] == [["#yes", "#", "!"], ["a"]]
    text = "# a comment\n#tag\tO\n#\tO\n"
    assert [s.words for s in read(tmp_path / "y.conll", text)] == [["#tag", "#"]]


def test_odd_words_of_a_file_with_tabs_are_words(tmp_path):
    words = ["\u200b", "\u00a0", "שלום", "👨‍👩‍👧", "a b"]
    text = "".join(f"{word}\tO\n" for word in words)
    assert read(tmp_path / "x.conll", text)[0].words == words


@pytest.mark.parametrize(
    ("text", "settings", "complaint"),
    [
        ("a\tO\nb\tO\tO\n", {}, r"x.conll:2: 3 columns.*line 1.* 2.*tabs"),
        ("a O\n\nb\n", {}, r"x.conll:3: 1 column.*line 1.* 2.*spaces"),
        ("a\tO\nb\t\n", {}, r"x.conll:2: the tag is empty"),
        ("a\tO\n\tO\n", {}, r"x.conll:2: the word is empty"),
        ("a\tO\n", {"tag_column": "3"}, r"x.conll:1: tag_column=3.* 2 columns"),
        ("a\tO\n", {"tag_column": "0"}, r"tag_column=.* 1.* -1"),
        ("a\tX\tO\n", {"tag_column": "ner"}, r"x.conll:1: tag_column=ner.* -1"),
        ("a\n", {}, r"cannot hold both words and tags"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(tmp_path / "x.conll", text, **settings)


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "x.conll").write_bytes(b"a\tO\n\xff\tO\n")
    with pytest.raises(ValueError, match=r"x.conll:2: not UTF-8"):
        list(read_tagged(str(tmp_path / "x.conll"), TaggedConfig()))

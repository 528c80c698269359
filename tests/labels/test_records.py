"""Records of JSON Lines, CSV and TSV (labels/formats: json_lines, delimited) become sentences or labeled texts."""

import json

import pytest
from labeling import read, write

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.records import relabeled, resplit, sentences_of_records, texts_of_records
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.tagged import read_labeled_texts, read_tagged


def test_json_lines_with_tokens_or_with_spans(tmp_path):
    records = [
        {"tokens": ["Anna", "runs"], "tags": ["B-PER", "O"]},
        {"text": "Anna Lee met Bo.", "spans": [{"start": 13, "end": 15, "label": "PER"}, [0, 8, "PER"]]},
    ]
    text = "".join(json.dumps(record) + "\n" for record in records)
    found = read(tmp_path / "x.jsonl", text)
    assert [read(tmp_path / f"x.{suffix}", text)[0].tags for suffix in ("json", "ndjson")] == [found[0].tags] * 2
    assert found[0].tags == ["B-PER", "O"]
    assert found[1].words == ["Anna", "Lee", "met", "Bo", "."]
    assert found[1].tags == ["B-PER", "I-PER", "O", "B-PER", "O"]
    assert [found[1].text[a:b] for a, b in found[1].offsets] == found[1].words


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ("{", "x.jsonl:1: not JSON"),
        ("[1]", "x.jsonl:1: expected an object, got int"),
        ('{"tokens": ["a"], "tags": []}', "1 words.* 0 tags"),
        ('{"tokens": ["a"], "ents": []}', "'tags'.*tokens, ents"),
        ('{"tokens": [1], "tags": ["O"]}', "word.* 1"),
        ('{"words_": 3}', "tokens.*text.*words_"),
        ('{"text": "ab", "spans": [[0, 9, "X"]]}', "within the 2 characters"),
        ('{"text": "a b", "spans": [[0, 3, "X"], [2, 3, "Y"]]}', "overlaps the one before it"),
        ('{"text": "a  b", "spans": [[1, 2, "X"]]}', "holds no word"),
        ('{"text": "a b", "spans": null}', "x.jsonl:1: spans.*None"),
        ('{"text": "a b", "spans": {"start": 0}}', "x.jsonl:1: spans must be a list"),
        ('{"text": "a b", "spans": [5]}', "a span is .*, got 5"),
        ('{"text": "a \\ud83d", "spans": []}', r"x.jsonl:1: \\ud83d .*errors"),
        ('[\n{"tokens": ["\\uDC80"], "tags": ["O"]}]', r"x.jsonl:2: \\udc80 .*errors"),
    ],
)
def test_a_wrong_record_is_named(tmp_path, record, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(tmp_path / "x.jsonl", record + "\n")


def test_half_a_character_may_be_replaced_and_places_stay(tmp_path):
    text = r'{"text": "\ud83d\ude00 \udc80 Anna", "spans": [[4, 8, "PER"]]}'
    (found,) = read_tagged(write(tmp_path / "x.jsonl", text), TaggedConfig(errors="replace"))
    assert (found.text, found.words[-1], found.tags[-1]) == ("😀 \ufffd Anna", "Anna", "B-PER")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.jsonl", '{"text": "good, really", "label": 1}\n{"text": "bad", "label": 0}\n'),
        ("x.csv", 'text,label\n"good, really",1\nbad,0\n'),
        ("x.tsv", "text\tlabel\ngood, really\t1\nbad\t0\n"),
    ],
)
def test_texts_with_a_label_are_one_word_with_one_tag(tmp_path, name, text):
    found = list(read_labeled_texts(write(tmp_path / name, text), TaggedConfig()))
    assert [(s.words, s.tags) for s in found] == [(["good, really"], ["1"]), (["bad"], ["0"])]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('text\tlabel\na\t+\n"b\t-\nc\t+\n"d\t-\n', r"x\.tsv:3: .*quote.* 5 "),
        ("text\ttext\tlabel\na\tb\t+\n", r"x\.tsv:1: .*'text'"),
    ],
)
def test_no_row_and_no_column_is_lost_silently(tmp_path, text, complaint):
    """A cell may hold quoted tabs or line breaks; both are rows that a stray quote swallowed."""
    with pytest.raises(ValueError, match=complaint):
        list(read_labeled_texts(write(tmp_path / "x.tsv", text), TaggedConfig()))
    quoted = 'text\tlabel\n"a ""b""\nc"\t+\n"d\te"\t-\n'
    found = read_labeled_texts(write(tmp_path / "x.tsv", quoted), TaggedConfig())
    assert [each.words for each in found] == [['a "b"\nc'], ["d\te"]]


def test_a_row_with_another_number_of_columns_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"x.csv:3: another number of columns"):
        list(read_labeled_texts(write(tmp_path / "x.csv", "text,label\na,1\nb\n"), TaggedConfig()))


def test_a_record_of_any_origin_knows_its_place():
    (sentence,) = sentences_of_records([({"tokens": ["a"], "tags": ["O"]}, 7)], "hf:x", TaggedConfig(), True)
    (text,) = texts_of_records([({"text": "a", "label": 1}, 9)], "hf:x", TaggedConfig(), True)
    assert (sentence.place(), text.place()) == ("hf:x:7", "hf:x:9")


@pytest.mark.parametrize("read", [sentences_of_records, texts_of_records])
def test_where_nobody_asks_for_tags_they_may_be_missing(read):
    (sentence,) = read([({"text": "Anna runs."}, 1)], "x", TaggedConfig(), False)
    assert sentence.tags is None
    with pytest.raises(ValueError, match=r"x:1: .*'(spans|label)'.*text"):
        list(read([({"text": "Anna runs."}, 1)], "x", TaggedConfig(), True))


def test_a_word_that_two_spans_share_becomes_two_and_real_overlaps_are_refused(tmp_path):
    spans = [{"start": 4, "end": 5, "label": "A"}, {"start": 5, "end": 7, "label": "B"}]
    (sentence,) = read(tmp_path / "a.jsonl", json.dumps({"text": "win ...", "spans": spans}))
    assert (sentence.words, sentence.tags) == (["win", ".", ".."], ["O", "B-A", "B-B"])
    with pytest.raises(ValueError, match=r"a\.jsonl:1.*5-7.*overlaps"):
        read(tmp_path / "a.jsonl", json.dumps({"text": "win ...", "spans": [{**spans[0], "end": 6}, spans[1]]}))


def test_spans_stay_where_they_are_when_a_text_is_split_otherwise():
    record = {"text": "王小明住在北京", "label": [[0, 3, "PER"], [5, 7, "LOC"]]}
    (sentence,) = sentences_of_records([(record, 4)], "a.jsonl", TaggedConfig(), True)
    assert len(sentence.words) == 7
    again = resplit(sentence, [(0, 3), (3, 5), (5, 7)])
    assert (again.words, again.tags) == (["王小明", "住在", "北京"], ["B-PER", "O", "B-LOC"])
    assert again.place(2) == "a.jsonl:4"
    assert resplit(again, sentence.offsets).tags == sentence.tags


def test_only_words_that_were_cut_out_of_a_text_have_places():
    record = {"text": "do n't", "tokens": [{"start": 0, "end": 2}, {"start": 3, "end": 6}], "spans": []}
    (given,) = sentences_of_records([(record, 1)], "a.jsonl", TaggedConfig(), True)
    assert (given.words, given.text, given.offsets) == (["do", "n't"], "do n't", None)


@pytest.mark.parametrize(
    ("key", "spans"), [("label", [[0, 4, "PER"]]), ("spans", [{"start": 0, "end": 4, "label": "PER"}])]
)
def test_an_empty_list_of_spans_is_filled_as_others_of_its_name_are(key, spans):
    sentence = Sentence(["Anna", "sang"], ["B-PER", "O"], "", [], "Anna sang", [(0, 4), (5, 9)])
    for before in ([], spans):
        assert relabeled({"id": 1, key: before}, sentence, TaggedConfig()) == {"id": 1, key: spans}


@pytest.mark.parametrize(("begin", "end", "label"), [("start", "end", "label"), ("start_offset", "end_offset", "type")])
def test_a_span_at_the_place_of_another_keeps_its_other_fields_and_all_their_names(begin, end, label):
    sentence = Sentence(["Anna", "sang"], ["B-PER", "B-X"], "", [], "Anna sang", [(0, 4), (5, 9)])
    old = [{"id": 7, begin: 0, end: 4, label: "LOC"}, {"id": 8, begin: 0, end: 9, label: "LOC"}, {begin: [1]}, 3]
    expected = [{"id": 7, begin: 0, end: 4, label: "PER"}, {begin: 5, end: 9, label: "X"}]
    assert relabeled({"entities": old}, sentence, TaggedConfig()) == {"entities": expected}


def test_only_the_labels_that_would_be_read_are_replaced():
    sentence = Sentence(["Anna", "sang"], ["B-PER", "O"], "", [])
    record = {"tokens": ["Anna", "sang"], "pos_tags": ["PROPN", "VERB"], "ner_tags": ["O", "O"]}
    assert relabeled(record, sentence, TaggedConfig()) == {**record, "ner_tags": sentence.tags}
    assert relabeled(record, sentence, TaggedConfig(tag_column="pos_tags")) == {**record, "pos_tags": sentence.tags}
    assert relabeled(record, sentence, TaggedConfig(tag_column="upos")) == {**record, "ner_tags": sentence.tags}

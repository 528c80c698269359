"""One tag for each word, whatever the word; the same tags alone, in a batch, in windows and in transformers."""

import json

import pytest
import torch
from grammar import documents
from reference import reference_transformers
from taggers import LABELS, TAGGER_SIZES

import bertkit
from bertkit.finetune.predict.settings import SETTINGS
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, SequenceClassifier, build_encoder

torch.set_num_threads(1)


def test_a_trained_tagger_finds_spans_in_raw_text_with_their_places(trained_tagger):
    text = "  anna watches the old house\tnear the station."
    found = bertkit.Tagger.load(trained_tagger).tag(text)
    assert found.words == ["anna", "watches", "the", "old", "house", "near", "the", "station", "."]
    assert [text[a:b] for a, b in found.offsets] == found.words
    kinds = [(span.kind, span.text, text[slice(*span.offsets)]) for span in found.spans]
    assert kinds == [("PER", "anna", "anna"), ("LOC", "near the station", "near the station")]
    assert all(0.2 < confidence <= 1 for confidence in found.confidences)


def test_words_and_text_get_the_same_tags(trained_tagger):
    tagger = bertkit.Tagger.load(trained_tagger)
    assert tagger.tag("anna watches the house.").tags == tagger.tag(["anna", "watches", "the", "house", "."]).tags


@pytest.mark.parametrize(
    "words",
    [
        [""],
        ["", "", ""],
        ["\u200b", "anna", "\u200d", "\ufeff"],
        ["שלום", "עולם", "\u202eabc"],
        ["👨‍👩‍👧", "👍🏽", "🇩🇪"],
        ["[SEP]", "[CLS]", "[MASK]", "[PAD]"],
        ["x" * 5000],
        ["anna", "x" * 5000, "paints"],
        ["a b", "c\td", "e\nf"],
        [],
    ],
)
def test_every_word_gets_one_tag(random_tagger, words):
    found = bertkit.Tagger.load(random_tagger).tag(words)
    assert found.words == words
    assert len(found.tags) == len(found.confidences) == len(words)
    assert set(found.tags) <= set(LABELS)


@pytest.mark.parametrize("text", ["", "   ", "\u200b", "a\u200bb", "שלום, עולם!", "👍🏽👍🏽 ok"])
def test_every_text_is_tagged_word_by_word(random_tagger, text):
    found = bertkit.Tagger.load(random_tagger).tag(text)
    assert "".join(found.words) == "".join(text.split())
    assert len(found.tags) == len(found.words)


def test_ten_thousand_words_get_ten_thousand_tags(random_tagger):
    """Row 16: a sentence far longer than the model is tagged to its end."""
    words = (" ".join(documents(400)).split() * 3)[:10_000]
    found = bertkit.Tagger.load(random_tagger).tag(words)
    assert len(found.tags) == 10_000
    assert len(set(found.tags)) > 1


def test_company_does_not_change_a_tag(random_tagger):
    tagger = bertkit.Tagger.load(random_tagger)
    texts = [*documents(20), "", "anna", *documents(5, seed=3)]
    together = list(tagger.tag_all(texts))
    assert [found.text for found in together] == texts
    for chunk in (1, 7):
        alone = list(tagger.tag_all(texts, chunk=chunk))
        assert [found.tags for found in alone] == [found.tags for found in together]


def test_in_bf16_a_tagger_is_as_sure_but_for_rounding(trained_tagger):
    whole, half = (bertkit.Tagger.load(trained_tagger, backend=backend) for backend in ("torch", "bf16"))
    for text in documents(10, seed=4):
        wanted, found = whole.tag(text), half.tag(text)
        assert found.tags == wanted.tags
        assert found.confidences == pytest.approx(wanted.confidences, abs=0.02)
        assert found.confidences != wanted.confidences, "products were rounded"


def test_tagging_is_lazy(random_tagger):
    read = []
    taggings = bertkit.Tagger.load(random_tagger).tag_all((read.append(i) or "anna" for i in range(100)), chunk=10)
    next(taggings)
    assert len(read) == 10


def test_transformers_gives_the_same_scores_and_its_pipeline_the_same_tags(random_tagger, grammar_tokenizer):
    transformers = reference_transformers()
    model = transformers.AutoModelForTokenClassification.from_pretrained(random_tagger).eval()
    assert model.config.id2label == dict(enumerate(LABELS))
    ids = torch.tensor([grammar_tokenizer.backend.encode("anna paints the old house").ids])
    torch.testing.assert_close(bertkit.load(random_tagger)(ids), model(ids).logits, rtol=1e-4, atol=1e-4)
    pipeline = transformers.pipeline("token-classification", model=str(random_tagger), ignore_labels=[])
    for text in documents(10, seed=9):
        if len(text) > 150:
            continue  # the pipeline does not cut what is too long for the model
        found = bertkit.Tagger.load(random_tagger).tag(text)
        theirs = {piece["start"]: piece["entity"] for piece in reversed(pipeline(text))}
        assert found.tags == [theirs[start] for start, _ in found.offsets]


def test_the_folder_remembers_how_words_were_split(trained_tagger, tmp_path):
    settings = json.loads((trained_tagger / "export" / SETTINGS).read_bytes())
    assert settings["split"]["punctuation"] is True
    assert bertkit.Tagger.load(trained_tagger).tag("anna.").words == ["anna", "."]
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (trained_tagger / "export").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    settings["split"]["punctuation"] = False
    (copy / SETTINGS).write_text(json.dumps(settings))
    assert bertkit.Tagger.load(copy).tag("anna.").words == ["anna."]
    (copy / SETTINGS).write_text('{"split": 3}')
    with pytest.raises(ValueError, match=SETTINGS):
        bertkit.Tagger.load(copy)


def test_a_model_without_labels_is_refused(grammar_tokenizer, tmp_path):
    config = BertConfig(vocab_size=grammar_tokenizer.vocab_size, **TAGGER_SIZES)
    bertkit.save(MaskedLM(build_encoder(config)), tmp_path, grammar_tokenizer)
    with pytest.raises(ValueError, match="MaskedLM, but a TokenTagger or a SequenceClassifier is needed"):
        bertkit.Tagger.load(tmp_path)


@pytest.mark.parametrize("config", [BertConfig, ModernBertConfig])
def test_transformers_opens_a_text_classifier(grammar_tokenizer, tmp_path, config):
    transformers = reference_transformers()
    encoder = build_encoder(
        config(vocab_size=grammar_tokenizer.vocab_size, max_position_embeddings=64, **TAGGER_SIZES), 0
    )
    model = SequenceClassifier(encoder, ["good", "bad"], 0).eval()
    bertkit.save(model, tmp_path, grammar_tokenizer)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert theirs.config.id2label == {0: "good", 1: "bad"}
    ids, mask = torch.randint(5, 100, (3, 9)), torch.ones(3, 9, dtype=torch.long)
    mask[1, 4:] = 0
    torch.testing.assert_close(model(ids, mask), theirs(ids, mask).logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(bertkit.load(tmp_path)(ids, mask), model(ids, mask))
    with pytest.raises(ValueError, match="give it a text, not words"):
        bertkit.Tagger.load(tmp_path).tag(["two", "words"])

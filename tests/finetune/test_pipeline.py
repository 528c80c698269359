"""The export of a tagger in the pipeline of transformers: the same spans, where both split words alike."""

import json
import random
import shutil

import pytest
import torch
from grammar import documents, write_conll, write_corpus
from reference import reference_transformers

import bertkit
from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.answers import LEGAL_SPANS
from bertkit.finetune.predict.settings import SETTINGS
from bertkit.finetune.train import finetune
from bertkit.model import BertConfig, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

torch.set_num_threads(1)
transformers = reference_transformers()
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("pipeline")
    corpus = CorpusConfig(corpus=[str(write_corpus(home / "text.txt"))])
    tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=150), home / "tokenizer")
    config = BertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=128, **SIZES)
    bertkit.save(build_encoder(config, 0), home / "encoder", tokenizer)
    data = [f"data.train={write_conll(home / 'train.conll', 60)}", f"data.dev={write_conll(home / 'dev.conll', 20, 1)}"]
    small = ["train.epochs=6", "train.global_batch=8", "optim.lr=0.01", f"run.dir={home / 'run'}"]
    assert finetune(read_finetune_recipe("ner", [*data, f"model.init={home / 'encoder'}", *small])) == 0
    return home / "run"


def strange(text, rng):
    """The text with letters behind some of its words, so that they fall into many subwords."""
    return " ".join(
        word + "".join(rng.choices("aeinrst", k=4)) if rng.random() < 0.3 else word for word in text.split()
    )


def agreeing(tagger, pipeline, texts):
    """In how many texts both find the same spans, and how many spans there are."""
    same = spans = 0
    for text in texts:
        ours = [(span.kind, *span.offsets) for span in tagger.tag(text).spans]
        same += ours == [(found["entity_group"], found["start"], found["end"]) for found in pipeline(text)]
        spans += len(ours)
    return same, spans


def opened(folder, strategy):
    return transformers.pipeline("token-classification", str(folder), aggregation_strategy=strategy)


def test_with_the_strategy_of_the_model_card_60_of_60_sentences_agree(run):
    assert 'aggregation_strategy="first"' in (run / "export" / "README.md").read_text()
    texts = [text.split(".")[0] + "." for text in documents(60, seed=9)]
    tagger = bertkit.Tagger.load(run)
    assert agreeing(tagger, opened(run / "export", "first"), texts) == (60, 120)
    assert agreeing(tagger, opened(run / "export", "simple"), texts)[0] < 30


def test_strange_words_agree_too_but_for_spans_that_only_we_mend(run, tmp_path):
    rng = random.Random(0)
    texts = [strange(text.split(".")[0], rng) + "." for text in documents(60, seed=9)]
    mended, _ = agreeing(bertkit.Tagger.load(run), opened(run / "export", "first"), texts)
    shutil.copytree(run / "export", tmp_path / "copy")
    settings = json.loads((tmp_path / "copy" / SETTINGS).read_text())
    (tmp_path / "copy" / SETTINGS).write_text(json.dumps(settings | {LEGAL_SPANS: False}))
    same, spans = agreeing(bertkit.Tagger.load(tmp_path / "copy"), opened(tmp_path / "copy", "first"), texts)
    assert same == 60
    assert spans > 120
    assert mended < 60

"""A writer begins with a pretrained encoder, or with bytes; its export is a plain masked LM; ranks share its rows."""

import json
import random

import numpy as np
import pytest
import torch
from grammar import NOUNS, write_corpus
from reference import reference_transformers

import bertkit
from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.batches import collate, training_batches
from bertkit.finetune.train import finetune
from bertkit.finetune.windows import RowForm, WordEncoder
from bertkit.finetune.writing.script import make_script, source_rows, training_row
from bertkit.model import BertConfig, MaskedLM, build_encoder
from data_pipelines.labels.sentence import Sentence
from data_pipelines.masks.plan import Plan
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer
from data_pipelines.vocab.units import unit_tokenizer

torch.set_num_threads(1)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "encoder"
    corpus = CorpusConfig(corpus=[str(write_corpus(folder.parent / "text.txt"))])
    tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=120), folder)
    config = BertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=48, **SIZES)
    bertkit.save(MaskedLM(build_encoder(config, 0), 0), folder, tokenizer)
    return folder


@pytest.fixture
def pairs(tmp_path):
    rng = random.Random(0)
    records = [{"source": rng.choice(NOUNS), "target": f"the {rng.choice(NOUNS)}"} for _ in range(20)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def train(pairs, run, *changes):
    sizes = [f"data.train={pairs}", f"data.dev={pairs}", f"run.dir={run}", "data.max_length=48", "train.epochs=1"]
    assert finetune(read_finetune_recipe("rewrite", [*sizes, *changes])) == 0
    return bertkit.Writer.load(run)


def test_a_pretrained_encoder_is_the_start_and_the_export_a_plain_masked_lm(encoder, pairs, tmp_path):
    init = f"model.init={encoder}"
    writer = train(pairs, tmp_path / "none", init, "data.order=parallel", "train.epochs=0")
    begun, given = bertkit.load(tmp_path / "none"), bertkit.load(encoder)
    assert all(torch.equal(a, b) for a, b in zip(begun.state_dict().values(), given.state_dict().values(), strict=True))
    writer = train(pairs, tmp_path / "run", init, "data.order=parallel")
    tagger = writer.tagger
    rows = tagger.task.rows([Sentence([NOUNS[0]], None, "", [])], tagger.encode, tagger.form)
    (_, ours), *_ = tagger.ask(rows)
    transformers = reference_transformers()
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "run/export").eval()
    batch = collate(rows)
    given = {"input_ids": batch.input_ids, "position_ids": batch.position_ids, "token_type_ids": batch.token_type_ids}
    with torch.no_grad():
        logits = theirs(**{key: value[None] for key, value in given.items()}).logits[0, batch.target_index]
    torch.testing.assert_close(ours, logits, rtol=1e-4, atol=1e-4)


def test_characters_of_an_encoder_of_subwords_are_refused(encoder, pairs, tmp_path):
    with pytest.raises(ValueError, match=r"data\.units=character"):
        train(pairs, tmp_path / "run", f"model.init={encoder}", "data.units=character")


@pytest.mark.parametrize("units", ["token", "byte"])
@pytest.mark.parametrize("slots", ["after", "between"])
def test_from_scratch_in_tokens_and_bytes(units, slots, pairs, tmp_path):
    (tmp_path / "shape.yaml").write_text("base: bert-tiny\nmodel: {hidden_size: 32, num_attention_heads: 2}\n")
    order = ["data.order=parallel", "data.slots=between"] if slots == "between" else []
    writer = train(pairs, tmp_path / "run", f"data.units={units}", f"model.like={tmp_path / 'shape.yaml'}", *order)
    written = writer.write_all([NOUNS[0], f"{NOUNS[1]} é"])
    assert [one.source for one in written] == [NOUNS[0], f"{NOUNS[1]} é"]


@pytest.mark.parametrize("order", ["left-to-right", "parallel"])
def test_every_number_of_ranks_draws_the_same_rows(order):
    tokenizer = unit_tokenizer("character", ["abc"])
    form = RowForm.of(tokenizer, BertConfig(vocab_size=tokenizer.vocab_size, **SIZES), 40)
    script = make_script(tokenizer, form, {"order": order, "extra": 3, "units": "character", "corruption": 0.3})
    sources = [Sentence(["abc"[: 1 + number % 3]], None, "", []) for number in range(12)]
    rows = [
        row._replace(target_M=np.array([5, 6, 7][: 1 + row.sentence % 2]))
        for row in source_rows(script, sources, WordEncoder(tokenizer), form)
    ]

    def drawn(rank, ranks):
        steps = training_batches(
            rows, Plan(len(rows), 4, 7), range(6), (rank, ranks), 4, lambda row, key: training_row(script, row, key)
        )
        return [
            sorted(
                tuple(ids.tolist())
                for batch in batches
                for ids in np.split(batch.input_ids.numpy(), batch.cu_seqlens[1:-1].numpy())
            )
            for _, batches in steps
        ]

    alone, first, second = drawn(0, 1), drawn(0, 2), drawn(1, 2)
    assert alone == [sorted(a + b) for a, b in zip(first, second, strict=True)]
    assert alone[:3] != alone[3:]

"""Models of every family are trained further and fine-tuned, and leave as what they were."""

import json

import pytest
import torch
from reference import reference_transformers

import bertkit
from bertkit.config.finetune import read_finetune_recipe
from bertkit.config.recipe import read_recipe
from bertkit.finetune.train import finetune
from bertkit.hf.model_types import MODEL_TYPES
from bertkit.pretrain.train import pretrain
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

transformers = reference_transformers()
torch.set_num_threads(1)
WORDS = ["anna", "paints", "the", "sea", "bob", "likes", "old", "trees", "clara", "sings"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = (" ".join(WORDS[(i * step) % len(WORDS)] for i in range(12)) for step in range(1, 60))
    path.write_text("\n\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    path = tmp_path_factory.mktemp("tags") / "tags.conll"
    lines = (f"{word}\t{'NAME' if word in ('anna', 'bob', 'clara') else 'OTHER'}" for word in WORDS)
    path.write_text(("\n".join(lines) + "\n\n") * 8)
    return path


@pytest.fixture(params=sorted(set(MODEL_TYPES)))
def folder(request, text, tmp_path):
    """A bare encoder of transformers with a tokenizer, as it lies on the hub."""
    tokenizer = train_tokenizer(CorpusConfig(corpus=[str(text)]), TokenizerConfig(vocab_size=80), tmp_path / "bare")
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    if request.param == "distilbert":
        shape = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24}
    if request.param == "electra":
        shape["embedding_size"] = 16
    config = transformers.AutoConfig.for_model(
        request.param, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.special.pad_id,
        max_position_embeddings=40, **shape,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path / "bare")
    return tmp_path / "bare"


def opened_by_transformers(folder, head):
    auto_class = getattr(transformers, f"AutoModel{head}")
    model, report = auto_class.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model.eval()


def assert_same_answers(run, head, before):
    ours, theirs = bertkit.load(run), opened_by_transformers(run / "export", head)
    model_type = json.loads((before / "config.json").read_text())["model_type"]
    assert theirs.config.model_type == ours.config.model_type == model_type
    ids = torch.arange(5, 20)[None]
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)


def test_pretraining_continues_with_a_new_head(folder, text, tmp_path):
    changes = [
        *(f"data.corpus={text}", f"model.init={folder}", f"run.dir={tmp_path / 'run'}", "data.seq_len=16"),
        *("train.steps=1", "train.global_batch=4", "train.micro_batch=4", "run.num_workers=0", "tokenizer.extend=0"),
        f"data.cache_dir={tmp_path / 'cache'}",
    ]
    assert pretrain(read_recipe("continued", changes)) == 0
    assert_same_answers(tmp_path / "run", "ForMaskedLM", folder)


def test_a_tagger_is_fine_tuned(folder, tagged, tmp_path):
    changes = [
        *(f"data.train={tagged}", f"data.dev={tagged}", f"model.init={folder}", f"run.dir={tmp_path / 'run'}"),
        "train.epochs=1",
    ]
    finetune(read_finetune_recipe("ner", changes))
    assert_same_answers(tmp_path / "run", "ForTokenClassification", folder)


def test_a_classifier_is_fine_tuned(folder, tmp_path):
    lines = (json.dumps({"text": f"{word} likes trees", "label": "ab"[i % 2]}) for i, word in enumerate(WORDS))
    (tmp_path / "texts.jsonl").write_text("\n".join(lines) + "\n")
    names = [f"data.train={tmp_path / 'texts.jsonl'}", f"data.dev={tmp_path / 'texts.jsonl'}"]
    changes = [*names, f"model.init={folder}", f"run.dir={tmp_path / 'run'}", "train.epochs=1"]
    finetune(read_finetune_recipe("text-classification", changes))
    assert_same_answers(tmp_path / "run", "ForSequenceClassification", folder)

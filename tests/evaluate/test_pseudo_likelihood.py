"""Every token is asked for once, with the right tokens hidden, and packing questions changes no answer."""

import numpy as np
import pytest
import torch

from bertkit.evaluate import pseudo_likelihood
from bertkit.evaluate.pseudo_likelihood import Sentence, token_log_probs
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, build_encoder
from data_pipelines.vocab.tokenizer import SpecialIds

torch.set_num_threads(1)
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SPECIAL = SpecialIds(0, 1, 2, 3, 4, frozenset(range(5)))
MASK = 4
SENTENCES = [
    Sentence((20, 21, 22), (0, 0, 1)),
    Sentence((20, 23, 22), (0, 0, 1)),
    Sentence((), ()),
    Sentence((20, 21, 22), (0, 0, 1)),
    Sentence((30, 31, 31, 32, 33), (0, 1, 1, 1, None)),
]
families = pytest.mark.parametrize("config", [BertConfig, ModernBertConfig])


def model_of(config) -> MaskedLM:
    torch.manual_seed(0)
    model = MaskedLM(build_encoder(config(vocab_size=50, **SIZES), 0), 0).eval()
    for parameter in model.parameters():  # so that answers differ visibly
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def one_by_one(model: MaskedLM, ids: tuple[int, ...], hidden: list[list[int]]) -> list[float]:
    """The log-probability of each token, of a row of its own with these places masked."""
    found = []
    for place, places in enumerate(hidden):
        row = [SPECIAL.cls_id, *(MASK if i in places else token for i, token in enumerate(ids)), SPECIAL.sep_id]
        with torch.no_grad():
            found.append(float(model(torch.tensor([row]))[0, place + 1].log_softmax(0)[ids[place]]))
    return found


def asked(model: MaskedLM, word_wise: bool, **options) -> list[np.ndarray]:
    return token_log_probs(model.target_logits, SPECIAL, SENTENCES, torch.device("cpu"), word_wise=word_wise, **options)


@families
def test_word_wise_hides_the_rest_of_the_word_and_plain_the_token_alone(config):
    model = model_of(config)
    word_wise, plain = asked(model, True), asked(model, False)
    short, long = SENTENCES[0].ids, SENTENCES[4].ids
    np.testing.assert_allclose(word_wise[0], one_by_one(model, short, [[0, 1], [1], [2]]), rtol=1e-4)
    np.testing.assert_allclose(plain[0], one_by_one(model, short, [[0], [1], [2]]), rtol=1e-4)
    np.testing.assert_allclose(word_wise[4], one_by_one(model, long, [[0], [1, 2, 3], [2, 3], [3], [4]]), rtol=1e-4)
    assert len(word_wise[2]) == 0
    assert abs(word_wise[0][0] - plain[0][0]) > 1e-3


@families
@pytest.mark.parametrize("word_wise", [True, False])
def test_batches_of_any_size_answer_the_same(config, word_wise, monkeypatch):
    model = model_of(config)
    together = asked(model, word_wise)
    monkeypatch.setattr(pseudo_likelihood, "BATCH_TOKENS", 1)
    for one, other in zip(together, asked(model, word_wise), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


def test_what_sentences_share_is_computed_once_and_progress_is_told():
    model, rows, told = model_of(BertConfig), [], []

    def counted(questions):
        rows.append(len(questions.target_index))
        return model.target_logits(questions)

    token_log_probs(
        counted, SPECIAL, SENTENCES, torch.device("cpu"), word_wise=False, report=lambda *now: told.append(now)
    )
    # Of the nine questions about three tokens, a sentence asks three twice, and two sentences share (20, [MASK], 22).
    assert rows == [5, 5]
    assert told == [(9, 14), (14, 14)]


def test_without_a_mask_token_nothing_can_be_asked():
    with pytest.raises(ValueError, match="no mask token"):
        token_log_probs(lambda batch: batch, SpecialIds(0, 1, 2, 3, None, frozenset()), SENTENCES, torch.device("cpu"))

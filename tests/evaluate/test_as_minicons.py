"""Minimal pairs are judged as minicons judges them, sentence by sentence, on an export; skipped where it is absent."""

import numpy as np
import pytest
import torch
from grammar import write_corpus
from small_model import save_small_model

from bertkit.evaluate.config import JudgeConfig
from bertkit.evaluate.judge import judge_folder
from bertkit.evaluate.minimal_pairs import MinimalPair


@pytest.mark.parametrize(("method", "theirs"), [("word-wise", "within_word_l2r"), ("plain", "original")])
def test_scores_and_winners_are_those_of_minicons(method, theirs, tmp_path):
    scorer = pytest.importorskip("minicons.scorer")
    folder = save_small_model(
        tmp_path / "model", write_corpus(tmp_path / "text.txt", count=30), vocab_size=70, positions=256
    )
    lines = [line for line in (tmp_path / "text.txt").read_text().splitlines() if line][:12]
    pairs = [MinimalPair(line, " ".join(line.split()[::-1]), "turned", "", "") for line in lines]
    ours = judge_folder(str(folder), pairs, JudgeConfig(method=method, ngram=0), None).scores_P2
    model = scorer.MaskedLMScorer(str(folder), "cpu")
    # What newer versions of transformers call it.
    model.tokenizer.batch_encode_plus = model.tokenizer.__call__
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    scores = model.sequence_score(texts, reduction=torch.sum, PLL_metric=theirs)
    np.testing.assert_allclose(ours.reshape(-1), [float(score) for score in scores], atol=1e-3)

"""The operations of a step are counted as the step does them: by hand, and by torch's own counter."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertkit.bench.step import Workload, make_batch
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, TokenTagger, build_encoder
from bertkit.model.flops import head_flops
from bertkit.run import peak
from bertkit.run.peak import count_flops, step_flops

torch.set_num_threads(1)
SHAPE = {"vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
CONFIGS = [
    BertConfig(**SHAPE, intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    ModernBertConfig(**SHAPE, intermediate_size=24),
]
encoders = pytest.mark.parametrize("config", CONFIGS, ids=["bert", "modernbert"])


@encoders
def test_a_step_has_the_operations_that_torch_counts_in_it(config):
    """But for attention and the forward pass of the projection: the counter does not look into operators of ours."""
    model = MaskedLM(build_encoder(config))
    batch = make_batch(Workload(2, 16, 100, rows=4, length=8, ragged=True)).packed
    num_targets = len(batch.target_ids)
    with FlopCounterMode(display=False) as counter:
        model(batch).backward()
    unseen = num_targets * 2 * 16 * 100
    assert counter.get_total_flops() == count_flops(model)(len(batch.input_ids), num_targets) - unseen


def test_every_token_passes_the_blocks_and_only_targets_the_last_one_and_the_head():
    count = count_flops(MaskedLM(build_encoder(CONFIGS[0])))
    block = 2 * (4 * 16 * 16 + 2 * 16 * 64)
    keys_and_values = 2 * 2 * 16 * 16
    assert count(1, 0) == 3 * (block + keys_and_values)
    assert count(0, 1) == 3 * (block - keys_and_values + 2 * 16 * (16 + 100))


def test_a_window_bounds_what_attention_adds():
    config = ModernBertConfig(**SHAPE, intermediate_size=24, local_attention=6, global_attn_every_n_layers=2)
    assert config.windows() == (None, 3)
    without, with_scores = (step_flops(config, 0.0, 10, 4, seen) for seen in (0.0, 100.0))
    assert with_scores - without == 3 * 4 * 16 * (10 * 100 + 4 * 7)


def test_a_frozen_encoder_runs_forward_only():
    model = TokenTagger(build_encoder(CONFIGS[0]), ["A", "B", "C"])
    head = 3 * 2 * 16 * 3
    assert head_flops(model) == 2 * 16 * 3
    before = count_flops(model)(7, 5)
    model.encoder.requires_grad_(False)
    assert count_flops(model)(7, 5) - 5 * head == (before - 5 * head) / 3


def test_a_peak_that_a_run_exceeds_is_measured_again_and_otherwise_not_reported(monkeypatch):
    measured = iter([10.0, 40.0, 5.0])
    monkeypatch.setattr(peak, "measure_peak", lambda device, precision: next(measured))
    accelerator = SimpleNamespace(device="cpu", mixed_precision="no", num_processes=2)
    share = peak.share_of_peak(lambda num_tokens, num_targets: num_tokens, accelerator)
    assert share(10, 0, 1.0) == 0.5
    assert share(60, 0, 1.0) == 0.75, "faster than the first peak, so it was measured again"
    assert share(20, 0, 1.0) == 0.25, "the best peak is kept"
    assert share(100, 0, 1.0) is None
    assert next(measured, None) is None


def test_a_peak_is_measured_a_few_times_at_most_and_before_anything_is_divided_by_it(monkeypatch):
    measured = []
    monkeypatch.setattr(peak, "measure_peak", lambda device, precision: measured.append(1.0) or 1.0)
    accelerator = SimpleNamespace(device="cpu", mixed_precision="no", num_processes=1)
    share = peak.share_of_peak(lambda num_tokens, num_targets: num_tokens, accelerator)
    assert share(0, 0, 1.0) == 0.0
    assert {share(2, 0, 1.0) for _ in range(20)} == {None}
    assert len(measured) == peak._MEASUREMENTS

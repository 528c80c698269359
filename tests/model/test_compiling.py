"""Models become one graph, by torch.compile and by torch.export, which computes rows of any length."""

import itertools

import pytest
import torch

from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, SequenceClassifier, TokenTagger, build_encoder

torch.set_num_threads(1)
SHAPE = {
    "vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24
}  # fmt: skip
ENCODERS = {
    "bert": BertConfig(**SHAPE, num_hidden_layers=1, max_position_embeddings=24),
    "modernbert": ModernBertConfig(**SHAPE, num_hidden_layers=2, local_attention=6, global_attn_every_n_layers=2),
}
HEADS = {
    "encoder": lambda encoder: encoder,
    "masked-lm": MaskedLM,
    "tagger": lambda encoder: TokenTagger(encoder, ["O", "B"]),
    "classifier": lambda encoder: SequenceClassifier(encoder, ["good", "bad"]),
}
every_model = pytest.mark.parametrize(("kind", "head"), list(itertools.product(ENCODERS, HEADS)))


def model_of(kind, head):
    return HEADS[head](build_encoder(ENCODERS[kind], seed=3))


def padded(*lengths, left=False, types=2):
    """Rows of such lengths; on the left or on the right they are padded."""
    ids = torch.randint(5, 50, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(sum(lengths)))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return ids, mask.flip(1) if left else mask, (torch.arange(max(lengths)) % types).expand_as(ids).contiguous()


@every_model
def test_the_padded_call_compiles_without_graph_breaks(kind, head):
    model = model_of(kind, head).eval()
    torch._dynamo.reset()
    # aot_eager traces like the default backend, but needs no C++ compiler.
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (padded(9, 4, 7), padded(3, 5, left=True), padded(20, 20, 1, 2)):
        torch.testing.assert_close(compiled(*rows), model(*rows))


@every_model
def test_a_model_is_exported_for_rows_of_any_number_and_length(kind, head):
    model = model_of(kind, head).eval()
    sizes = {0: torch.export.Dim("rows", max=64), 1: torch.export.Dim("length", min=2, max=24)}
    program = torch.export.export(model, padded(9, 4, 7), dynamic_shapes=(sizes,) * 3).module()
    for rows in (padded(9, 4, 7), padded(3, 5, left=True), padded(2), padded(24, 20, 1, 2)):
        torch.testing.assert_close(program(*rows), model(*rows))


def test_compiled_models_train_alike():
    """With dropout: what is dropped is drawn from torch's generator, whether compiled or not."""
    model, twin = (model_of("bert", "tagger") for _ in range(2))
    torch._dynamo.reset()
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager", dynamic=True)
    rows = padded(9, 4, 7)
    for run in (model, compiled):
        torch.manual_seed(5)
        run(*rows).logsumexp(-1)[rows[1] == 1].sum().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)

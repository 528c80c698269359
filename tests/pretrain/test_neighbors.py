"""Embeddings that start from neighbours: tokens used alike start alike, and what was never seen stays as it was."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from grammar import write_corpus

from bertkit.config.recipe import read_recipe
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, build_encoder
from bertkit.model.initial_heads import BESIDE
from bertkit.model.initialization import fill, outline_encoder
from bertkit.pretrain import start_model
from bertkit.pretrain.neighbors import REACH, SIZE, neighbor_tables, start_from_neighbors
from bertkit.pretrain.train import pretrain
from data_pipelines.rows.batch import RowBatch

torch.set_num_threads(1)
VOCABULARY = 40
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
WIDE = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16}


class Sequences:
    """Rows of one sequence each, held in memory."""

    def __init__(self, sequences: list[list[int]]):
        self.sequences = sequences
        self.num_tokens = sum(map(len, sequences))

    def __len__(self) -> int:
        return len(self.sequences)

    def gather(self, row_ids) -> RowBatch:
        chosen = [self.sequences[row] for row in row_ids]
        borders = np.cumsum([0, *map(len, chosen)])
        return RowBatch(np.concatenate(chosen), borders, borders)

    def token_counts(self) -> np.ndarray:
        return np.bincount(np.concatenate(self.sequences), minlength=VOCABULARY)


def alternating() -> Sequences:
    """Tokens 10-19 stand between 5 and 6, tokens 20-29 between 7 and 8; 30-39 never occur; 0-4 are special."""
    rng = np.random.default_rng(0)
    one = [[1, 5, int(rng.integers(10, 20)), 6, 2] for _ in range(300)]
    other = [[1, 7, int(rng.integers(20, 30)), 8, 2] for _ in range(300)]
    return Sequences(one + other)


def circle() -> Sequences:
    """Tokens 5-39 always follow each other in the same order."""
    return Sequences([[5 + (start + place) % 35 for place in range(12)] for start in range(35)])


def started(config=None, rows=None) -> tuple[MaskedLM, MaskedLM]:
    """A model before and after."""
    config = config or ModernBertConfig(vocab_size=VOCABULARY, **SIZES)
    before, after = (MaskedLM(build_encoder(config, 0), 0) for _ in range(2))
    start_from_neighbors(after, rows or alternating(), frozenset(range(5)), seed=0)
    return before, after


def common(before: torch.Tensor, after: torch.Tensor, kept: list[int]) -> torch.Tensor:
    """What these tokens, whose embeddings only got another size, have more."""
    size = SIZE * ModernBertConfig(vocab_size=VOCABULARY).initializer_range
    return after[kept] - before[kept] * size / before[kept].square().mean(dim=1, keepdim=True).sqrt()


def test_tokens_with_the_same_neighbours_start_alike_and_others_apart():
    for config in (ModernBertConfig(vocab_size=VOCABULARY, **SIZES), BertConfig(vocab_size=VOCABULARY, **SIZES)):
        before, after = (model.encoder.tokens.weight.detach() for model in started(config))
        tokens = F.normalize(after - common(before, after, [1]), dim=1)
        alike = tokens[10:20] @ tokens[10:20].T
        apart = tokens[10:20] @ tokens[20:30].T
        assert alike.min() > 0.9
        assert apart.abs().max() < 0.1


def test_special_and_unseen_tokens_get_only_what_all_have_in_common_and_the_bias_is_the_log_frequency():
    before, after = started()
    kept = [*range(5), 9, *range(30, 40)]
    added = common(before.encoder.tokens.weight, after.encoder.tokens.weight, kept)
    torch.testing.assert_close(added, added[:1].expand_as(added))
    assert added[0].norm() > 0
    counts = alternating().token_counts()
    bias = after.head.decoder_bias.detach()
    assert torch.allclose(bias.exp().sum(), torch.tensor(1.0))
    assert torch.allclose(bias[10] - bias[20], torch.tensor((counts[10] + 0.5) / (counts[20] + 0.5)).log().float())
    assert bias[1] < bias[10], "a special token is never a target, however often it occurs"


def test_with_rotary_positions_heads_start_by_looking_at_the_tokens_beside():
    before, after = started(ModernBertConfig(vocab_size=VOCABULARY, **WIDE))
    generator = torch.Generator().manual_seed(0)
    ids, mask = torch.randint(VOCABULARY, (1, 40), generator=generator), torch.ones(1, 40, dtype=torch.long)
    looks = after.encoder.attention_weights(ids, mask)[0][0]
    at_random = before.encoder.attention_weights(ids, mask)[0][0]
    for head, distance in enumerate(BESIDE):
        assert looks[head].diagonal(distance).mean() > 0.5
        assert at_random[head].diagonal(distance).mean() < 0.1


def test_before_any_training_a_masked_token_is_predicted_from_its_neighbours():
    before, after = started(ModernBertConfig(vocab_size=VOCABULARY, **WIDE), circle())
    sequences = torch.tensor(circle().sequences)
    rows, places = torch.arange(len(sequences)), torch.arange(len(sequences)) % 8 + 2
    masked = sequences.clone()
    masked[rows, places] = 4

    def share_right(model: MaskedLM) -> float:
        predicted = model(masked, torch.ones_like(masked))[rows, places].argmax(dim=1)
        return (predicted == sequences[rows, places]).float().mean().item()

    assert share_right(after) > 0.9
    assert share_right(before) < 0.2


def test_heads_of_the_second_block_start_by_looking_at_places_with_the_same_neighbours():
    """In a sequence that repeats itself, a mask looks, beside itself, at the token that stands in its place."""
    before, after = started(ModernBertConfig(vocab_size=VOCABULARY, **WIDE), circle())
    once = torch.from_numpy(np.random.default_rng(0).permutation(np.arange(5, 25)))
    ids, place = torch.cat([once, once])[None], 30
    ids[0, place] = 4
    for model, same in ((after, True), (before, False)):
        looks_HL = model.encoder.attention_weights(ids, torch.ones_like(ids))[1][0][:, place].detach()
        looks_HL[:, place] = 0
        assert bool((looks_HL.argmax(dim=1) == place - len(once)).all()) is same


def test_heads_of_a_family_that_learns_its_positions_start_as_they_were():
    before, after = (model.state_dict() for model in started(BertConfig(vocab_size=VOCABULARY, **SIZES)))
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert changed == {"encoder.tokens.weight", "head.decoder_bias", "head.transform.dense.weight"}


def test_the_tables_hold_the_association_of_every_pair_inside_a_sequence():
    """Against counting one by one; pairs that span two sequences do not count."""
    rng = np.random.default_rng(1)
    rows = Sequences([rng.integers(0, 12, rng.integers(1, 9)).tolist() for _ in range(50)])
    counts = rows.token_counts()
    expected = np.zeros((len(BESIDE) + 1, VOCABULARY, VOCABULARY))
    for sequence in rows.sequences:
        for here, token in enumerate(sequence):
            for there, other in enumerate(sequence):
                distance = there - here
                if 0 < abs(distance) <= REACH:
                    table = BESIDE.index(distance) if distance in BESIDE else -1
                    expected[table, token, other] += 1 / max(1, abs(distance) - 1)
    frequent = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    tables, contexts = neighbor_tables(rows, counts)
    assert contexts.tolist() == frequent.tolist()
    for table, pairs in zip(tables, expected, strict=True):
        pairs = pairs[:, frequent]
        share = pairs.sum(0) ** 0.75 / (pairs.sum(0) ** 0.75).sum()
        ratio = pairs / np.maximum(pairs.sum(1, keepdims=True) * share, 1e-12)
        np.testing.assert_allclose(table, np.log(np.maximum(ratio, 1)), rtol=1e-4, atol=1e-4)


def test_the_start_is_a_function_of_rows_and_seed():
    one, other = (started()[1].state_dict() for _ in range(2))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_an_outline_starts_as_a_model_does():
    outline = MaskedLM(outline_encoder(started()[0].config, 0), 0)
    start_from_neighbors(outline, alternating(), frozenset(range(5)), seed=0)
    assert all(param.is_meta for param in outline.parameters())
    wanted = started()[1].state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in fill(outline).state_dict().items())


@pytest.mark.parametrize("sequences", [[[1, 7, 2]], [[7, 8]], [[7] * 20], [[1, 2]], [[5, 3, 5, 0], [5, 1, 6, 1, 0, 4]]])
@pytest.mark.parametrize("channels", [2, 4, 16])
def test_with_next_to_nothing_counted_the_first_gradient_is_finite(sequences, channels):
    config = ModernBertConfig(vocab_size=VOCABULARY, **{**SIZES, "hidden_size": 2 * channels})
    model = started(config, Sequences(sequences))[1]
    ids = torch.tensor([[1, 7, 4, 8, 9, 2]])
    model(ids, torch.ones_like(ids)).logsumexp(-1).sum().backward()
    assert all(param.grad.isfinite().all() and param.abs().max() < 1000 for param in model.parameters())


def test_a_projection_of_its_own_starts_as_the_embeddings():
    model = started(ModernBertConfig(vocab_size=VOCABULARY, tie_word_embeddings=False, **SIZES))[1]
    assert torch.equal(model.head.decoder_weight, model.encoder.tokens.weight)


def test_a_run_counts_once_and_the_time_belongs_to_its_minutes(tmp_path, monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        start_from_neighbors(*arguments)

    monkeypatch.setattr(start_model, "start_from_neighbors", counted)
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    text = write_corpus(tmp_path / "text.txt", count=60)
    small = [f"model.{name}={value}" for name, value in SIZES.items()]
    changes = [f"data.corpus={text}", f"run.dir={tmp_path / 'run'}", "data.seq_len=32", "tokenizer.vocab_size=120"]
    changes += ["model.embeddings=neighbors", "train.global_batch=8", "train.minutes=null", "run.num_workers=0"]
    recipe = read_recipe("modernbert-mini", [*changes, *small, "train.steps=2"])
    assert pretrain(recipe) == 0
    assert len(calls) == 1
    assert pretrain(recipe) == 0
    assert len(calls) == 1, "a resumed run has its embeddings in the checkpoint"

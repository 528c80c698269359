"""transformers as the oracle: hidden states, logits and gradients of its model and of ours, side by side."""

import torch

import bertkit
from bertkit.hf.files import open_weights
from bertkit.hf.layout import read_layout
from bertkit.hf.models import layout_of
from bertkit.hf.names import weight_table


def ragged_batch(vocab_size, pad_token_id, lengths, seed=0):
    """Ids and mask of right-padded rows; no attended token is the padding token, which transformers freezes."""
    ids = torch.randint(2, vocab_size, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.where((mask == 1) & (ids != pad_token_id), ids, pad_token_id)
    ids[(mask == 1) & (ids == pad_token_id)] = vocab_size - 1
    return ids, mask


def assert_import_and_export_agree(theirs, auto_class, folder, lengths, **inputs):
    """theirs → folder → ours → folder → theirs again: outputs and gradients agree, weights return bit for bit."""
    theirs.save_pretrained(folder / "theirs")
    ours = bertkit.load(folder / "theirs")
    ids, mask = ragged_batch(theirs.config.vocab_size, theirs.config.pad_token_id, lengths)
    inputs = {name: values(ids) for name, values in inputs.items()}
    with open_weights(folder / "theirs") as weights:
        layout = read_layout(folder / "theirs", weights.shapes)
    assert_same_outputs_and_gradients(ours, theirs, layout, ids, mask, **inputs)
    bertkit.save(ours, folder / "ours")
    again, report = auto_class.from_pretrained(folder / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert type(again) is type(theirs), "the export keeps the family"
    assert_same_outputs_and_gradients(ours, again, layout_of(ours), ids, mask, **inputs)
    again.save_pretrained(folder / "again")
    returned = bertkit.load(folder / "again").state_dict()
    assert returned.keys() == ours.state_dict().keys()
    assert all(torch.equal(returned[name], tensor) for name, tensor in ours.state_dict().items())
    return ours, again


def assert_same_outputs_and_gradients(ours, theirs, layout, ids, mask, **inputs):
    """`layout` says what theirs calls our weights."""
    ours, theirs = ours.eval(), theirs.eval()
    ours.zero_grad()
    theirs.zero_grad()
    found, expected = ours(ids, mask, **inputs), theirs(ids, attention_mask=mask, **inputs)[0]
    if found.ndim == 3:
        found, expected = found[mask == 1], expected[mask == 1]
    assert_close(found, expected, "output")
    direction = torch.randn(found.shape, generator=torch.Generator().manual_seed(1)) / found.shape[0]
    (found * direction).sum().backward()
    (expected * direction).sum().backward()
    theirs_by_name = dict(theirs.named_parameters())
    ours_by_name = dict(ours.named_parameters())
    compared = 0
    for row in weight_table(layout, ours_by_name):
        if ours_by_name[row.ours].grad is None:
            continue
        for name in row.written:
            grad = row.write(name, ours_by_name[row.ours].grad)
            # Tied weights have one name among the parameters; an untied BERT has a bias that it never uses.
            if name in theirs_by_name and theirs_by_name[name].grad is not None:
                assert_close(grad, theirs_by_name[name].grad, name)
                compared += 1
    assert compared > 5


def assert_close(found, expected, name):
    difference = (found - expected).abs().max()
    assert difference <= 1e-5 * max(1, expected.abs().max()), f"{name} differs by {difference}"

"""What torch.compile joins, by the plan's rule, on kernels made by hand."""

import pytest
from gpu_step import ONE, needs_fake_cuda, shipped_step

from bertkit.plan.fusion import fused
from bertkit.plan.watch import Access, Kernel

ADD, NORM = ("add", 100), ("native_layer_norm", 100)


def kernel(operator: tuple[str, int], read: dict[int, int], written: dict[int, int], **rest) -> Kernel:
    """Storages by number, with the bytes that are read and written of each."""
    accesses = [tuple(Access(number, 0, size) for number, size in part.items()) for part in (read, written)]
    total = sum(read.values()) + sum(written.values())
    return Kernel(operator[0], "", total, joins=operator[1], read=accesses[0], written=accesses[1], **rest)


def product(read: dict[int, int], written: dict[int, int]) -> Kernel:
    return kernel(("mm", 0), read, written, kind="product")


def names(kernels: list[Kernel]) -> list[str]:
    return [kernel.name for kernel in fused(kernels)]


def test_a_chain_reads_what_others_made_and_writes_what_others_read():
    step = [
        product({-1: 9}, {1: 200}),
        kernel(ADD, {1: 200, -2: 400}, {2: 400}),  # a sum that only the norm reads
        kernel(NORM, {2: 400}, {3: 400}),
        kernel(("_to_copy", 100), {3: 400}, {4: 200}),
        product({4: 200}, {5: 200}),
        kernel(("sum", 0), {3: 400}, {6: 4}),
    ]
    assert names(step) == ["mm", "add+native_layer_norm+_to_copy", "mm", "sum"]
    assert fused(step)[1].num_bytes == (200 + 400) + (400 + 200)


@pytest.mark.parametrize(
    "step",
    [
        [kernel(ADD, {-1: 8}, {1: 8}), kernel(("add", 50), {1: 8}, {2: 8})],
        [kernel(ADD, {-1: 8}, {1: 8}), product({1: 8}, {2: 8}), kernel(ADD, {1: 8, 2: 8}, {3: 8})],
        [kernel(ADD, {-1: 8}, {1: 8}), kernel(("add_", 100), {1: 8, -2: 8}, {-2: 8})],
        [kernel(ADD, {-1: 8}, {1: 8}), kernel(("gather", 0), {}, {9: 1}, is_border=True), kernel(ADD, {1: 8}, {2: 8})],
        [product({-1: 8}, {1: 8}), kernel(ADD, {1: 8}, {2: 8})],
    ],
    ids=["other size", "needs a product of it", "accumulates", "another layer of FSDP", "after a product"],
)
def test_what_cannot_run_as_one_stays_apart(step):
    assert fused(step) == step


def test_what_is_changed_in_place_is_joined_where_it_was_made():
    made, changed = kernel(("mul", 100), {-1: 8}, {1: 8}), kernel(("addcmul_", 100), {1: 8, -2: 8}, {1: 8})
    step = [made, changed, product({1: 8}, {2: 8})]
    assert names(step) == ["mul+addcmul_", "mm"]
    assert fused(step)[0].num_bytes == 8 + 8 + 8


@needs_fake_cuda
def test_work_stays_and_traffic_shrinks():
    kernels = shipped_step("modernbert-base", ONE).micro_batch
    joined = fused(kernels)
    for part in (kernels, joined):
        assert sum(kernel.num_operations for kernel in part) == sum(kernel.num_operations for kernel in kernels)
    assert sum(kernel.num_bytes for kernel in joined) < 0.9 * sum(kernel.num_bytes for kernel in kernels)
    assert "copy_+mul+addcmul_+mul+addcmul_" in {kernel.name for kernel in joined}, "rotary positions are one kernel"

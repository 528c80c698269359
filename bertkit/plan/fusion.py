"""Kernels enter as eager mode calls them; fewer leave, as torch.compile would join them.

The rule: elementwise operators, dropout and layer norms over equally many values become one kernel where one uses what
another made and all else that they use was there before. That kernel reads what others made, and writes what others
read. Products, attention, gathers, sums over tokens, our own loss and the accumulation of gradients stay by themselves.
Inductor joins all of this by default, and more.
"""

from collections import defaultdict
from collections.abc import Sequence

from bertkit.plan.watch import Kernel


def fused(kernels: Sequence[Kernel]) -> list[Kernel]:
    groups: list[list[Kernel]] = []
    starts: list[int] = []
    """Of each group the place of its first kernel; groups that run in this order find all that they need."""
    maker: dict[int, int] = {}
    """The group that made a storage."""
    made_at: dict[int, int] = {}
    border = 0
    for place, kernel in enumerate(kernels):
        border = place if kernel.is_border else border
        read, written = ({access.storage for access in accesses} for accesses in (kernel.read, kernel.written))
        new = written - read - maker.keys()
        group = max((maker[storage] for storage in (read | written) & maker.keys()), default=-1)
        foreign = {storage for storage in (read | written) - new if maker.get(storage) != group}
        if not (
            group >= 0
            and 0 < kernel.joins == groups[group][-1].joins
            and starts[group] >= border
            and not foreign & written
            and all(made_at.get(storage, -1) < starts[group] for storage in foreign)
        ):
            group = len(groups)
            groups.append([])
            starts.append(place)
        groups[group].append(kernel)
        maker |= dict.fromkeys(new, group)
        made_at |= dict.fromkeys(new, place)
    readers = defaultdict(set)
    for group, members in enumerate(groups):
        for access in (access for kernel in members for access in kernel.read):
            readers[access.storage].add(group)
    return [_joined(group, members, maker, readers) for group, members in enumerate(groups)]


def _joined(group: int, members: list[Kernel], maker: dict[int, int], readers: dict[int, set[int]]) -> Kernel:
    if len(members) == 1:
        return members[0]
    read = {access for kernel in members for access in kernel.read if maker.get(access.storage) != group}
    written = {access for kernel in members for access in kernel.written if readers[access.storage] != {group}}
    num_bytes = sum(access.num_bytes for access in (*read, *written))
    return Kernel("+".join(kernel.name for kernel in members), members[0].line, num_bytes)

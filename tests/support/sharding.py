"""Accelerate shards on GPUs only. Here it shards on CPUs as well, as a launch file asks, with true messages."""

import os
from collections.abc import Mapping
from pathlib import Path

from accelerate import DistributedType
from accelerate.state import AcceleratorState, PartialState

from bertkit.plan.ranks import launch_environment


def fsdp_environment(launch_file: Path) -> dict[str, str]:
    """What `accelerate launch` says of FSDP to a process that it starts."""
    return {name: value for name, value in launch_environment(2, launch_file, 0).items() if "FSDP" in name}


def shard_on_cpus(environment: Mapping[str, str]) -> None:
    """To be called by each process before it connects."""
    os.environ.update(environment)
    plain = AcceleratorState.__init__

    def promoting(self, *args, fsdp_plugin=None, **options):
        plain(self, *args, fsdp_plugin=fsdp_plugin, **options)
        if self.distributed_type == DistributedType.MULTI_CPU:  # as accelerate itself does with MULTI_GPU
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = promoting

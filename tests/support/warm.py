"""Imported once by the server of processes: whatever a run imports, so that none has to wait for it."""

import pytest  # noqa: F401
import torch
import torch._dynamo
import torch.distributed
import torch.distributed.run

import bertkit.cli.training
import bertkit.finetune.train
import bertkit.pretrain.train
import bertkit.run.start  # noqa: F401

torch.set_num_threads(1)

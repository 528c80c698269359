"""The fine-tuning tasks: one file and one row each."""

from typing import TYPE_CHECKING

from data_pipelines.table import Table

if TYPE_CHECKING:
    from bertkit.finetune.tasks.task import Task

TASKS: "Table[Task]" = Table(
    "task",
    {
        "tagging": "bertkit.finetune.tasks.tagging:TAGGING",
        "classification": "bertkit.finetune.tasks.classification:CLASSIFICATION",
        "multi-label": "bertkit.finetune.tasks.multi_label:MULTI_LABEL",
        "regression": "bertkit.finetune.tasks.regression:REGRESSION",
        "pairs": "bertkit.finetune.tasks.pairs:PAIRS",
        "similarity": "bertkit.finetune.tasks.similarity:SIMILARITY",
        "rewrite": "bertkit.finetune.tasks.rewrite:REWRITE",
    },
)
"""By the name that a recipe's key `task` gives."""

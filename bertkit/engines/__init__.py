"""Who runs the parts of a large job: this machine, Slurm or Ray. One file and one row each."""

from typing import TYPE_CHECKING

from data_pipelines.table import Table

if TYPE_CHECKING:
    from bertkit.engines.parts import Engine

ENGINES: "Table[Engine]" = Table(
    "engine",
    {
        "local": "bertkit.engines.local:run",
        "slurm": "bertkit.engines.slurm:run",
        "ray": "bertkit.engines.ray:run",
    },
)
"""By the name that --engine gives."""

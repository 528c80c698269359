"""A number for two texts: how alike they are, how well one answers the other."""

from dataclasses import replace
from functools import partial

from bertkit.finetune.tasks.pairs import PAIRS
from bertkit.finetune.tasks.regression import REGRESSION, read_numbers

SIMILARITY = replace(
    REGRESSION,
    unit=PAIRS.unit,
    examples=PAIRS.examples,
    read=partial(read_numbers, paired=True),
    rows=PAIRS.rows,
    pools_windows=PAIRS.pools_windows,
    reader=PAIRS.reader,
    inputs=PAIRS.inputs,
    example=PAIRS.example,
)

"""A plugin that makes every step take a while, for a run that a launcher starts."""

from runs import dawdle

dawdle()

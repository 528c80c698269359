"""Rows to masked batches: plan, keyed randomness, masking, the collator, the loader."""

"""Pretraining: one optimizer step, the schedule, checkpoints, the loop, and masked-token evaluation."""

"""Labels under examination: which of them are likely wrong, and which sentences are worth labelling next."""

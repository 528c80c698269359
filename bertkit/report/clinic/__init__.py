"""Pages of labels to look through: those that are likely wrong, and sentences worth labelling next."""

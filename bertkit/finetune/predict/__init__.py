"""A fine-tuned model at work: text in, tags out, from Python or from files and streams."""

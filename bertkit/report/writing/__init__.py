"""Pages about texts that a model wrote."""

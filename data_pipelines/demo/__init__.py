"""A corpus and labels from the sources of this Python installation."""

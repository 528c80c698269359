"""Labeled files to words and tags, or texts and labels."""

"""Labeled files to words and tags."""

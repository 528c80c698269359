"""Tokenizers: train, open, extend, examine; where words begin."""

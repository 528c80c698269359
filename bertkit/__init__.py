"""bertkit: raw text to a BERT-style encoder, and the encoder to a tagger."""

__version__ = "0.1.0"

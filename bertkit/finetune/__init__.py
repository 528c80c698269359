"""An encoder and labeled data enter, a tagger or a text classifier leaves, with its scores."""

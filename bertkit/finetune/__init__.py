"""An encoder and labeled data to a tagger or text classifier, with its scores."""

"""Writing a text from another one with an encoder: rows, decoding, scores, and the writer that users call."""

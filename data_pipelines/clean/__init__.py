"""Documents in, the documents worth training on out: duplicates, poor text, test sets and private data are found."""

"""Documents to memory-mapped rows."""

"""Files and hub names to documents."""

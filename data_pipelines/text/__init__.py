"""Files and hub datasets to documents."""

"""Raw text to an encoder: inputs, the start, the budget, the visible loop."""

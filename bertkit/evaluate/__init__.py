"""What a model knows: masked loss, pseudo-perplexity, minimal pairs, filled masks."""

"""What a model knows: masked loss, pseudo-perplexity, filled masks."""

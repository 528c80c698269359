"""Raw text to masked batches: corpus, tokenizer, token shards, sampling plan, masking collator."""

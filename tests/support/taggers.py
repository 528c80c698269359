"""The shape and labels of the small taggers that conftest.py of the fine-tuning tests makes."""

TAGGER_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]

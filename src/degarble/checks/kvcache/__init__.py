"""Rules about the KV cache, judged from a trace: one rule a file."""

"""Rules about the KV cache, judged from a trace or from a declaration: one rule a file."""

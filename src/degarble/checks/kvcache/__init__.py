"""Rules about the KV cache, judged from a trace or from a declaration: one rule a file."""

ON_CHECKPOINTS = False
"""No rule here is judged on files alone, so that `check` need not import any of them."""

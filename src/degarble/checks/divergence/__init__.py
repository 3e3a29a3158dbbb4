"""Rules about where a candidate leaves its reference, on a forward pass of both."""

ON_CHECKPOINTS = False
"""No rule here is judged on files alone, so that `check` need not import any of them."""

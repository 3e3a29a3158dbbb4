"""Rules about live endpoints, judged from what probes asked and were answered: one rule a file."""

ON_CHECKPOINTS = False
"""No rule here is judged on files, so that `check` need not import any of them."""

"""Guards over the reference engine."""

"""Which component of a candidate is guilty: local tests that find it, counterfactuals that prove it."""

"""Look-alikes and edges of the engine rules."""

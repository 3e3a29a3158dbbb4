"""Look-alikes and edges of the rules about values."""

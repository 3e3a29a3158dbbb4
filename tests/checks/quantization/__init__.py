"""Look-alikes and edges of the quantisation rules."""

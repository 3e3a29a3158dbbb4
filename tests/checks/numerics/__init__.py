"""Look-alikes and edges of the NUM rules."""

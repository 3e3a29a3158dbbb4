"""Look-alikes and edges of single rules, by family."""

"""Activations that somebody else wrote down: read safely, and laid beside those of the walk."""

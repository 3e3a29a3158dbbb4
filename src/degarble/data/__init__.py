"""Tables and the demonstration checkpoint."""

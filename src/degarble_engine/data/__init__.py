"""Data files of the engine."""

"""Checks, one rule a file."""

"""Faults planted in a running engine."""

"""Planted faults, the opposite of checks: one file a rule, found by walking this package."""

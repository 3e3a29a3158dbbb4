"""Measuring a running endpoint under load."""

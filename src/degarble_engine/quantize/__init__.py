"""Quantisation: from a plain checkpoint to a verified quantised one."""

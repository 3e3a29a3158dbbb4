"""Rules that explain findings about values: what is broken in a file's bytes or in the config shows in the numbers."""

from __future__ import annotations

DAMAGED_FILE = ("CKP101", "CKP105", "CKP106", "CKP108")
"""The bytes are not those that were written."""

WRONG_READING = ("CFG102", "QNT104", "QNT105", "QNT116")
"""Codes and scales are read with the wrong width, group, grid or shape."""

DAMAGED_VALUES = ("NUM308", "WGT201", "WGT202", "WGT203", "WGT204", "WGT205", "WGT220")
"""Exact findings about the same module, which every statistic of its values feels."""

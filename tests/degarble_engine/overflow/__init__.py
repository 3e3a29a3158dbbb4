"""Tests of the range walk."""

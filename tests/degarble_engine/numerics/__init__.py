"""Tests of the walk."""

"""Tests of degarble.cli."""

"""Tests of planning, writing and undoing repairs."""

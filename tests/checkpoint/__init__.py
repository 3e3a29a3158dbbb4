"""Tests of degarble.checkpoint."""

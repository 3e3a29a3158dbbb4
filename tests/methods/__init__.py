"""Tests of degarble.methods."""

"""Tests of degarble.formats."""

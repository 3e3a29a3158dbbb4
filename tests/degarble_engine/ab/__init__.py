"""Tests of degarble_engine.ab."""

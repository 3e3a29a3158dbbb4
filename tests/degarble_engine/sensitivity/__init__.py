"""Tests of degarble_engine.sensitivity."""

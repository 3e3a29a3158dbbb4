"""Tests of live caches."""

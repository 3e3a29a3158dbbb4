"""Tests of quantised caches."""

"""Tests of degarble.policy."""

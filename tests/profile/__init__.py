"""Tests of degarble.profile."""

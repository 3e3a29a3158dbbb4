"""Tests of the report and its writers."""

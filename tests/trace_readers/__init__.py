"""Tests of degarble.trace_readers."""

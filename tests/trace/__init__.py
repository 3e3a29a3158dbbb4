"""Tests of the trace: events, replay, rules, faults."""

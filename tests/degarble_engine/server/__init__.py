"""Tests of the served API."""

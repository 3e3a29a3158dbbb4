"""Tests of the torch half."""

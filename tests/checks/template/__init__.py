"""Tests of the TPL rules."""

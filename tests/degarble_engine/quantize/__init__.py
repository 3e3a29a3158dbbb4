"""Tests of quantisation."""

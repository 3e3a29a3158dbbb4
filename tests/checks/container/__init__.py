"""Tests of single container rules."""

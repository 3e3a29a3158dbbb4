"""Tests of the half that needs torch."""

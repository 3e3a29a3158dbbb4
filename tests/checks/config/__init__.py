"""Tests of the rules on the config."""

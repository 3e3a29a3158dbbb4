"""Tests of the rules on tokenizers."""

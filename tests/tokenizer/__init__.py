"""Tests of degarble.tokenizer."""

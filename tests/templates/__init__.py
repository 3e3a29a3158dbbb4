"""Tests of the chat template renderer."""

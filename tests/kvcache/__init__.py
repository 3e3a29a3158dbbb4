"""Tests of the KV cache without tensors."""

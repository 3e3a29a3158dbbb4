"""Tests of `degarble.architectures`."""

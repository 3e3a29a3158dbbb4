"""Tests, in the tree of src/degarble."""

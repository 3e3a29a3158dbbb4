"""Tests of changes of layout."""

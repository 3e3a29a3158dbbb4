"""Tests of the client of endpoints."""

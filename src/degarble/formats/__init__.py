"""Stored weight formats behind StoredModule, one layout a file."""

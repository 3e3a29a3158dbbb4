"""Minimal definitions of decoder families, one a file, that read a checkpoint in whatever format it is stored."""

"""Faults planted in healthy KV-cache traces: the opposite of every rule that a trace can break."""

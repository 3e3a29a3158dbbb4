"""KV-cache traces: the events of schema 1, a writer for engines, and a replay that proves or breaks their invariants."""

"""Talking to a running endpoint of OpenAI's API, ours or another."""

"""Chat templates: rendered under a budget, probed with conversations, and read for what they write around a turn."""

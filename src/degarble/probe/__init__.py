"""Black-box questions to an OpenAI-compatible endpoint, and plain records of what it answered."""

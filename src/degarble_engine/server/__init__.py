"""The OpenAI API on the reference engine."""

"""Rules about where a candidate leaves its reference, on a forward pass of both."""

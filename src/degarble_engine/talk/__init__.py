"""A conversation with an endpoint in a terminal."""

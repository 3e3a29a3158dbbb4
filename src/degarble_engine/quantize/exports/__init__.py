"""One way of writing a quantised checkpoint a file."""

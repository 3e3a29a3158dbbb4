"""Input made to break the tool."""

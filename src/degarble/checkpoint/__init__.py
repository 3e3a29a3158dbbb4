"""Reading and editing what is on disk."""

"""What a running server tells of itself."""

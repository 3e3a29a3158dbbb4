"""The incident played again."""

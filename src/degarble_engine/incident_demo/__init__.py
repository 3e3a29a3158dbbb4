"""The incident that degarble comes from, played again: three faults at once behind a live endpoint, and their diagnosis."""

"""The report object and its writers, one file each."""

"""Repairs: what undoes a fault, one file each. `degarble.repairing` decides which of them run."""

"""Where numbers leave a dtype's range, under the arithmetic of each engine."""

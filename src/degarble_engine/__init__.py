"""The half of degarble that needs torch: engine, numerics, quantisation. It points at the core, never back."""

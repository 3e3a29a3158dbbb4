"""Experiments of `degarble diagnose` that run models: each a module with NAME and `run(inputs)`, joined by entry points."""

"""How each quantisation method spells itself in config files: one file a method."""

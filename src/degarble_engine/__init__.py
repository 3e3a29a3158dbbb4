"""The torch half of degarble: the layer walk, numerics, and later the engine. Needs the extra `engine`."""

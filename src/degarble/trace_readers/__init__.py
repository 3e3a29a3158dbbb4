"""Files of other tools that say something about a KV cache: one reader a format, found by walking this package."""

"""What a quantised KV cache costs, layer by layer."""

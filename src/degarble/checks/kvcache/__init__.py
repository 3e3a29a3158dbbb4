"""Rules about the KV cache: layouts, allocators, traces."""

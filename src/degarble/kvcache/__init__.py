"""The KV cache without tensors: declared layouts, the block manager, and the contracts between them."""

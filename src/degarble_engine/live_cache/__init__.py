"""The pages of one live request beside the keys and values that the model's own weights give for its tokens."""

"""Two checkpoints on the same prompts: which is better, by how much, and whether so few prompts can tell."""

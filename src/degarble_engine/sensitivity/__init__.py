"""What a rounding error costs: gradients of the loss, layer by layer, and what follows for bits and tokens."""

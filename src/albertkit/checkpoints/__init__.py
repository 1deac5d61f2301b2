"""Read and write checkpoints of every format as a config dict and named tensors."""

"""Train a model on labeled data, evaluate it, and write its predictions."""

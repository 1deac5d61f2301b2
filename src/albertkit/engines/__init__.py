"""Compute the scores of rows of token ids with ONNX Runtime or torch."""

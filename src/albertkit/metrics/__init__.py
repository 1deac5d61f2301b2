"""Predictions and references -> the figures that the official scripts give. No torch, no files."""

"""Metrics that compare predictions with references, equal to the official scripts. No torch, no files."""

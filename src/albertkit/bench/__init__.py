"""Measure the speed of a model by engine, length and batch, and compare it with other libraries."""

"""Inspect how a model processes texts: its attention, its vectors by layer, its word preferences."""

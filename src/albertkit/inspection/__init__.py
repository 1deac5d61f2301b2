"""Inspect how a model processes texts: its attention and its vectors by layer."""

"""What a model does with texts: where it looks, how its vectors settle with depth, which words it prefers."""

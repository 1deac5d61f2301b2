"""Prepare a corpus as token shards, and pretrain a model on them."""

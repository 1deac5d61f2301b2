"""Inputs for the pipelines of all tasks."""

import types

LIMIT = 48
"""The maximum length of the models in the fixture `made`, in tokens."""
TEXTS = ["the harbour opened", "my sister found the silver word", "a word"]
PAIRS = [("the harbour opened", "a word"), ("my sister", "the silver code")]
QUESTION = types.MappingProxyType({"question": "who opened it", "context": "the captain opened the harbour"})
CHOICE = types.MappingProxyType(
    {"context": "the captain", "question": "who", "choices": ["a word", "my sister"]}
)

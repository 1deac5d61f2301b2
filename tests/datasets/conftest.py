"""Fixtures of the tests of dataset readers."""

from labeled_files import write  # noqa: F401  # a fixture

"""Labeled data as it lies around -> examples, with a report of what could not be used. No torch."""

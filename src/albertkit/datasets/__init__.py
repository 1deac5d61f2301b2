"""Read examples from labeled data in common formats, with a report of the rows left out. No torch."""

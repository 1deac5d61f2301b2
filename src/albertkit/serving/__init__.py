"""The HTTP server: it batches the rows of all requests, and returns the answers of the pipelines."""

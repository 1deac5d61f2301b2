"""The HTTP server: it batches the rows of all requests, and returns the results of the pipelines.

`server.serve` runs it in one process, `workers.py` in several. A request goes through these files:

    connections.py   closes connections with slow clients or long heads
    guard.py         checks the key, and the size and the time of the body; counts responses
    application.py   routes, described in OpenAPI by the schemas of request_schemas.py
    reading.py       limits and parses the JSON of a body; errors that name the fields
    service.py       limits and deadline; runs a pipeline in a thread of its own
    pages.py         with --playground: the page of html/
    batching.py      admission; the rows of all requests -> batches -> the engine of a model (models.py)
"""

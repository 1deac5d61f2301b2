"""A server: texts over HTTP, computed together by token budget, answered as the pipelines answer.

`server.serve` starts it, `workers.py` several processes. A request goes through these files:

    connections.py   bytes: clients that are too slow, heads that are too long
    guard.py         the key, the size of a body, its time; every answer is counted
    application.py   routes, described in OpenAPI by the models of request_schemas.py
    reading.py       the JSON of a body, counted before it is parsed; what is wrong in it
    service.py       limits, a place (admission.py), a deadline; a pipeline in a thread of its own
    pages.py         with --playground: the page of html/
    batching.py      the rows of all requests -> batches -> the engine of a model (models.py)
"""

"""The libraries of the `serve` extra, imported here because classes of this package derive from theirs."""

from albertkit.errors import MissingExtraError

try:
    import fastapi
    import fastapi.exceptions
    import fastapi.security
    import prometheus_client
    import pydantic
    import uvicorn
    import uvicorn.config
    from starlette.exceptions import HTTPException as HTTPError
    from starlette.middleware.cors import CORSMiddleware
    from starlette.routing import Route
except ImportError as error:
    raise MissingExtraError(
        f"the server needs libraries that are not installed ({error}). Run pip install 'albertkit[serve]'."
    ) from error

__all__ = ["CORSMiddleware", "HTTPError", "Route", "fastapi", "prometheus_client", "pydantic", "uvicorn"]

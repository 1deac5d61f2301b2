"""The tools of the matrix: one row of the table each."""

from dataclasses import dataclass

from environments import TEST_ENVIRONMENT


@dataclass(frozen=True)
class Tool:
    """A tool, the environment that it runs in, and the script that checks it."""

    name: str
    package: str
    """The distribution whose version the table shows."""
    script: str
    environment: str
    """The name of its requirements file, or the test environment."""
    arguments: tuple[str, ...] = ()


TOOLS = (
    Tool("transformers 5", "transformers", "transformers_models.py", TEST_ENVIRONMENT),
    Tool("onnxruntime", "onnxruntime", "onnxruntime_models.py", "onnxruntime"),
)

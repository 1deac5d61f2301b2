"""The tools of the matrix. Each tool is a row of the table."""

from dataclasses import dataclass

from environments import TEST_ENVIRONMENT

LIBRARIES = "libraries"
"""The environment with albertkit and the libraries that some test files import."""


LIBRARY_TESTS = (
    "test_openai_client.py",
    "test_optuna.py",
    "test_sentence_transformers.py",
    "test_trackers.py",
    "test_transformers_tools.py",
)
"""Test files that run in this environment. The others run in the test environment."""


@dataclass(frozen=True)
class Tool:
    """A tool, the environment that it runs in, and the script that checks it."""

    name: str
    package: str
    """The name of the distribution whose version the table shows."""
    script: str
    environment: str
    """The name of its requirements file, or the test environment."""


TOOLS = (
    Tool("transformers 5", "transformers", "transformers_models.py", TEST_ENVIRONMENT),
    Tool("transformers 4", "transformers", "transformers_models.py", "transformers-4"),
    Tool("onnxruntime", "onnxruntime", "onnxruntime_models.py", "onnxruntime"),
    Tool("optimum with onnxruntime", "optimum", "optimum_models.py", "transformers-4"),
    Tool("curated-transformers", "curated-transformers", "curated_models.py", "curated-transformers"),
    Tool("keras-hub", "keras-hub", "keras_hub_models.py", "keras-hub"),
    Tool("sentence-transformers", "sentence-transformers", "sentence_transformers_models.py", LIBRARIES),
    Tool("transformers.js", "@huggingface/transformers", "transformers_js_models.mjs", "transformers-js"),
)

"""A fixture that runs every test of a file on both engines of pipelines.

pytestmark = pytest.mark.usefixtures("engine_of_pipelines")
"""

from collections.abc import Iterator
from typing import Any

import pytest

from albertkit.engines.choosing import make_engine
from albertkit.engines.light_model import LightModel
from albertkit.pipelines import core


@pytest.fixture(scope="module", params=["onnx", "torch"])
def engine_of_pipelines(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let "auto" choose the ONNX engine, then the PyTorch engine, and return its name."""

    def choose_engine(model: Any, name: str = "auto") -> Any:
        from engine_rows import light  # needs PyTorch

        name = request.param if name == "auto" else name
        computed = light(model) if name == "onnx" and not isinstance(model, LightModel) else model
        return make_engine(computed, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "make_engine", choose_engine)
        yield request.param

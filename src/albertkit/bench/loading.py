"""Load the model to measure. The head needs an engine, but no pipeline."""

from albertkit.checkpoints.formats import load_config
from albertkit.devices import Device, best_device, read_device
from albertkit.engines.choosing import load_complete_model
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError
from albertkit.heads import HEADS, head_of
from albertkit.tokenization.base import TokenizerBase
from albertkit.vocabularies import load_tokenizer


def load(name: str, *, device: Device = None, dtype: str | None = None) -> tuple[Model, TokenizerBase]:
    """Return a model with its own head, and its tokenizer. A pretraining model is an `AlbertForMaskedLM`.

    Args:
        name: A folder, a checkpoint of another library, or a hub name.
        device: A device, as for `pipeline`; None for the best single device.
        dtype: Data type of the weights; None for float32.

    Raises:
        ConfigError: The config does not name a model class.
        AlbertKitError: As for `pipeline`.
    """
    config = load_config(name)
    classes = config.architectures or []
    if not classes:
        raise ConfigError(
            f"{name}: the config does not name a model class. Add one to `architectures` in its config.json: "
            f"{', '.join(HEADS)}."
        )
    architecture = next((one for one in classes if one in HEADS), classes[0])
    if architecture == "AlbertForPreTraining":
        architecture = "AlbertForMaskedLM"
    head_of(architecture)  # raises an error for unknown classes
    model = load_complete_model(
        name, architecture, device=read_device(device) or best_device(), config=config, dtype=dtype
    )
    return model, load_tokenizer(name)

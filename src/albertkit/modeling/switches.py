"""Switches of a model: attention implementation, gradient checkpointing, input gradients for adapters."""

from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from albertkit.errors import ConfigError
from albertkit.modeling.facts import ModelFacts
from albertkit.modeling.layers import AlbertTransformer


class ModelSwitches(ModelFacts):
    """The methods of `AlbertPreTrainedModel` that trainers and adapter libraries call."""

    supports_gradient_checkpointing: ClassVar[bool] = True
    _input_hook: RemovableHandle | None = None

    @property
    def base_model(self) -> Any:
        """The model that has the `encoder`."""
        raise NotImplementedError

    def _encoder(self) -> AlbertTransformer:
        return self.base_model.encoder

    def set_attn_implementation(self, attn_implementation: Literal["sdpa", "eager"]) -> None:
        """Choose the attention implementation for all later calls.

        Raises:
            ConfigError: The implementation is unknown.
        """
        self.config.replace(attn_implementation=attn_implementation)  # raises if the name is unknown
        self.config.attn_implementation = attn_implementation

    def gradient_checkpointing_enable(
        self, gradient_checkpointing_kwargs: dict[str, Any] | None = None
    ) -> None:
        """Keep only each layer's input in training, and recompute the rest in the backward pass.

        The only accepted setting is `use_reentrant=False`, the default.
        """
        if gradient_checkpointing_kwargs not in (None, {}, {"use_reentrant": False}):
            raise ConfigError(
                f"gradient_checkpointing_kwargs is {gradient_checkpointing_kwargs}. Expected "
                "{'use_reentrant': False} or None."
            )
        self._encoder().gradient_checkpointing = True

    def gradient_checkpointing_disable(self) -> None:
        """Disable gradient checkpointing."""
        self._encoder().gradient_checkpointing = False

    def activation_checkpointing_enable(
        self,
        activation_checkpointing_kwargs: dict[str, Any] | None = None,
        *,
        every_n_layers: int = 1,
        offload: bool = False,
    ) -> None:
        """Call `gradient_checkpointing_enable`. Every layer is recomputed; nothing is offloaded.

        Raises:
            ConfigError: `every_n_layers` is not 1, or `offload` is True.
        """
        if every_n_layers != 1 or offload:
            raise ConfigError(
                f"every_n_layers={every_n_layers!r}, offload={offload!r} is not supported. Omit both."
            )
        self.gradient_checkpointing_enable(activation_checkpointing_kwargs)

    def activation_checkpointing_disable(self) -> None:
        """Call `gradient_checkpointing_disable`; this is its newer name."""
        self.gradient_checkpointing_disable()

    @property
    def is_gradient_checkpointing(self) -> bool:
        """Whether layers are recomputed in the backward pass."""
        return self._encoder().gradient_checkpointing

    @property
    def is_activation_checkpointing(self) -> bool:
        """The newer name of `is_gradient_checkpointing`."""
        return self.is_gradient_checkpointing

    def enable_input_require_grads(self) -> None:
        """Make the output of the embeddings require gradients, for adapters on frozen weights.

        Gradient checkpointing needs an input that requires gradients.
        """
        self.disable_input_require_grads()
        self._input_hook = self.get_input_embeddings().register_forward_hook(_require_grad)

    def disable_input_require_grads(self) -> None:
        """Undo `enable_input_require_grads`."""
        if self._input_hook is not None:
            self._input_hook.remove()
        self._input_hook = None


def _require_grad(module: nn.Module, inputs: Any, output: Tensor) -> None:  # noqa: ARG001
    output.requires_grad_(True)

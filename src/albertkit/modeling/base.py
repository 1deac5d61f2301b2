"""Methods and properties that trainers and adapter libraries use: device, data type, size, switches."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError


class ModelBase(nn.Module):
    """The methods and properties of `AlbertPreTrainedModel` that trainers and adapter libraries use."""

    config: AlbertConfig
    base_model_prefix: ClassVar[str] = "albert"
    supports_gradient_checkpointing: ClassVar[bool] = True
    _input_hook: RemovableHandle | None = None

    # Attributes that code written for `transformers` reads.
    main_input_name: ClassVar[str] = "input_ids"
    input_modalities: ClassVar[str] = "text"
    is_parallelizable: ClassVar[bool] = False
    model_tags: ClassVar[list[str] | None] = None
    _auto_class: ClassVar[str | None] = None
    _can_record_outputs: ClassVar[dict[str, Any] | None] = None  # layers return their attentions
    _compatible_flash_implementations: ClassVar[list[str] | None] = None
    _is_stateful: ClassVar[bool] = False
    _keep_in_fp32_modules: ClassVar[list[str] | None] = None
    _keep_in_fp32_modules_strict: ClassVar[list[str] | None] = None
    _keys_to_ignore_on_load_missing: ClassVar[list[str] | None] = None
    _keys_to_ignore_on_load_unexpected: ClassVar[list[str] | None] = None
    _keys_to_ignore_on_save: ClassVar[list[str] | None] = None
    _no_split_modules: ClassVar[list[str]] = ["AlbertEmbeddings", "AlbertLayer"]  # residual connections
    _pp_plan: ClassVar[dict[str, Any] | None] = None
    _skip_keys_device_placement: ClassVar[list[str] | None] = None
    _supports_attention_backend: ClassVar[bool] = False
    _supports_context_parallel: ClassVar[bool] = False
    _supports_flash_attn: ClassVar[bool] = False
    _supports_flex_attn: ClassVar[bool] = False
    _supports_sdpa: ClassVar[bool] = True
    _tied_weights_keys: ClassVar[dict[str, str] | None] = None
    _tp_plan: ClassVar[dict[str, Any] | None] = None

    @property
    def base_model(self) -> Any:
        """The encoder: `self.albert`, or this model if it has no head."""
        return getattr(self, self.base_model_prefix, self)

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the word embeddings (V, E)."""
        return self.base_model.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the word embeddings. Call `tie_weights` afterwards to update a tied decoder."""
        self.base_model.embeddings.word_embeddings = value

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self._first_parameter().device

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the parameters."""
        return self._first_parameter().dtype

    def _first_parameter(self) -> Tensor:
        for parameter in self.parameters():
            return parameter
        # Replicas of nn.DataParallel have plain tensors instead of parameters.
        return self.get_input_embeddings().weight

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Return the number of parameters; shared and tied parameters count once."""
        embeddings = {id(module.weight) for module in self.modules() if isinstance(module, nn.Embedding)}
        return sum(
            parameter.numel()
            for parameter in self.parameters()
            if (parameter.requires_grad or not only_trainable)
            and not (exclude_embeddings and id(parameter) in embeddings)
        )

    def get_memory_footprint(self, return_buffers: bool = True) -> int:
        """Return the size of the parameters and, by default, of the buffers, in bytes.

        Shared parameters count once.
        """
        buffers = self.buffers() if return_buffers else ()
        return sum(tensor.nbytes for tensor in (*self.parameters(), *buffers))

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        return True

    @classmethod
    def can_generate(cls) -> bool:
        """Return False: ALBERT models cannot generate text."""
        return False

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """A small batch of inputs for tracing the model."""
        return {"input_ids": torch.tensor([[self.config.bos_token_id, 5, 6, self.config.eos_token_id]])}

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

        The only accepted setting is `use_reentrant`. It has no effect: layers are recomputed as with False,
        which gives the same gradients.
        """
        if set(gradient_checkpointing_kwargs or {}) - {"use_reentrant"}:
            raise ConfigError(
                f"gradient_checkpointing_kwargs is {gradient_checkpointing_kwargs}. Expected "
                "{'use_reentrant': False} or None."
            )
        self.base_model.encoder.gradient_checkpointing = True

    def gradient_checkpointing_disable(self) -> None:
        """Disable gradient checkpointing."""
        self.base_model.encoder.gradient_checkpointing = False

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
        return self.base_model.encoder.gradient_checkpointing

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

"""AlbertPreTrainedModel: everything that an ALBERT model needs besides its forward pass.

It initializes, loads and saves models, and ties embeddings.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from albertkit.checkpoints import formats
from albertkit.checkpoints.arrays import Arrays, to_arrays, to_tensors
from albertkit.checkpoints.folder import write_folder
from albertkit.checkpoints.match import LoadReport, match
from albertkit.checkpoints.names import shared_names
from albertkit.checkpoints.sentence_modules import files_of
from albertkit.config import ARGUMENTS, AlbertConfig, as_config, one_of
from albertkit.devices import choose_device, choose_dtype
from albertkit.errors import ConfigError, warn_caller
from albertkit.heads import ENCODER, HEADS
from albertkit.hub import refuse_push_to_hub, split_hub_options, take_loading_options
from albertkit.hub_upload import PushToHub
from albertkit.modeling.layers import AlbertDecoder
from albertkit.modeling.outputs import ModelOutput
from albertkit.tuple_outputs import make_output

Output = TypeVar("Output", bound=ModelOutput)

_INITIALIZED = (nn.Linear, AlbertDecoder, nn.Conv1d, nn.Conv2d, nn.Embedding, nn.LayerNorm)
"""The layers that `post_init` initializes. All others keep the values of their constructors."""


def _require_grad(module: nn.Module, inputs: Any, output: Tensor) -> None:  # noqa: ARG001
    output.requires_grad_(True)


class AlbertPreTrainedModel(nn.Module, PushToHub):
    """Base class of all ALBERT models.

    A model with a head keeps its encoder as `self.albert`. The encoder without a head is its own base model.
    """

    config: AlbertConfig
    config_class: ClassVar[type[AlbertConfig]] = AlbertConfig
    base_model_prefix: ClassVar[str] = "albert"
    supports_gradient_checkpointing: ClassVar[bool] = True
    _input_hook: RemovableHandle | None = None

    # Attributes that code written for `transformers` reads, with their true values.
    main_input_name: ClassVar[str] = "input_ids"
    input_modalities: ClassVar[str] = "text"
    is_parallelizable: ClassVar[bool] = False
    model_tags: ClassVar[list[str] | None] = None
    _auto_class: ClassVar[str | None] = None
    _can_record_outputs: ClassVar[dict[str, Any] | None] = None  # layers return their attentions
    _compatible_flash_implementations: ClassVar[list[str] | None] = None
    _is_stateful: ClassVar[bool] = False
    _keep_in_fp32_modules: ClassVar[Collection[str]] = ()
    _keep_in_fp32_modules_strict: ClassVar[Collection[str]] = ()
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

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        return True

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return False

    @classmethod
    def _from_config(cls, config: AlbertConfig, *, attn_implementation: str | None = None) -> Self:
        config = as_config(config)
        return cls(config.replace(attn_implementation=attn_implementation or config.attn_implementation))

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        config = as_config(config)
        config.validate()
        self.config = config
        self.num_labels = config.num_labels
        self.name_or_path = ""
        """The name that was passed to `from_pretrained`. PEFT records it in the config of an adapter."""

    # --- initialization -------------------------------------------------------------------------

    def post_init(self) -> None:
        """Initialize the parameters of this class and tie weights. Every constructor calls this method last.

        As in the original, matrices are drawn from a normal distribution with standard deviation
        `initializer_range`, truncated at two deviations; biases are 0 and LayerNorm weights are 1. The
        encoder is drawn first, so its weights depend only on the seed, not on the head. Parameters of other
        layers, such as an LSTM, keep their values, unless `_init_weights` changes them.
        """
        encoder = f"{self.base_model_prefix}."
        self.initialize(name for name, _ in self.named_parameters() if not name.startswith(encoder))
        self.tie_weights()
        if self.config.extra.get("gradient_checkpointing"):  # in configs of old versions of `transformers`
            self.gradient_checkpointing_enable()

    def init_weights(self) -> None:
        """Call `post_init`. `init_weights` is its older name."""
        self.post_init()

    @torch.no_grad()
    def initialize(self, names: Iterable[str]) -> None:
        """Initialize these parameters in the given order with PyTorch's global random generator."""
        new = [*names]
        for name in new:
            module_name, _, parameter_name = name.rpartition(".")
            self._initialize(self.get_submodule(module_name), parameter_name)
        if type(self)._init_weights is not AlbertPreTrainedModel._init_weights:
            for path, module in reversed([*self.named_modules()]):
                inner = {f"{path}.{name}".lstrip(".") for name, _ in module.named_parameters()}
                if module is self:
                    inner = {name for name in inner if not name.startswith(f"{self.base_model_prefix}.")}
                if inner and inner <= {*new}:
                    self._init_weights(module)

    def _init_weights(self, module: nn.Module) -> None:
        """Initialize the parameters of a layer. Override this method for layers of your own.

        `initialize` calls it for each layer outside the encoder whose parameters are all new, inner layers
        first, and for the model last.
        """
        for name, _ in module.named_parameters(recurse=False):
            self._initialize(module, name)

    @torch.no_grad()
    def _initialize(self, module: nn.Module, name: str) -> None:
        parameter, std = getattr(module, name), self.config.initializer_range
        if parameter.is_meta or not isinstance(module, _INITIALIZED):
            return
        if name == "bias":
            parameter.zero_()
        elif isinstance(module, nn.LayerNorm):
            parameter.fill_(1.0)
        elif name == "weight":
            nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std)

    # --- files ----------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path | None,
        *model_args: Any,
        config: AlbertConfig | str | Path | None = None,
        state_dict: Mapping[str, Tensor] | None = None,
        dtype: torch.dtype | str | None = None,
        torch_dtype: torch.dtype | str | None = None,
        device_map: str | torch.device | Mapping[str, str | int | torch.device] | None = None,
        ignore_mismatched_sizes: bool = False,
        output_loading_info: bool = False,
        **options: Any,
    ) -> Self:
        """Load a model from a folder or the hub, in evaluation mode.

        The checkpoint may contain only the encoder, or a model with any head. Missing tensors of the head are
        initialized. A warning lists these tensors, and tensors of the checkpoint that this model does not
        use.

        Args:
            pretrained_model_name_or_path: "bundled", a folder, a hub name, or a checkpoint of another library
                (TensorFlow: folder, prefix or archive; Julia: `.tfbson`). With `config`, also a single file
                of weights, such as `pytorch_model.bin`. None if `config` and `state_dict` are both passed.
            model_args: Positional arguments of this class after `config`.
            config: A config, or its file, folder or hub name, instead of the checkpoint's config.
            state_dict: Tensors by name, instead of the checkpoint's tensors.
            dtype: Data type of the weights, such as torch.float16 or "float16". "auto" keeps the data type of
                the file. Default float32.
            torch_dtype: Older name of `dtype`.
            device_map: A device, or "auto" for the best single device (CUDA, then MPS, then CPU). Default
                CPU.
            ignore_mismatched_sizes: Whether to initialize tensors of a different shape instead of raising.
            output_loading_info: Whether to return (model, info). `info` has the sets `missing_keys`,
                `unexpected_keys` and `mismatched_keys`, and the complete `report`.
            options: Arguments of `AlbertConfig`, such as `num_labels=3`; arguments of this class, such as
                `add_pooling_layer=False`; hub options `revision`, `cache_dir`, `token`, `local_files_only`
                and `subfolder` (see `hub.HubOptions`); and loading options of `transformers` (see
                `hub.take_loading_options`).

        Returns:
            The model, or (model, info) with `output_loading_info`.

        Raises:
            ModelNotFoundError: The name or folder has no model.
            ConfigError: The config is not an ALBERT config, or an option is unknown, unsupported or
                inconsistent with the others.
            CheckpointError: Encoder tensors are missing or have a different shape, or a file is damaged.
        """
        hub, named = split_hub_options(options)
        overrides = take_loading_options(named)
        # A constructor with `**kwargs` takes all that are not arguments of the config.
        parameters = inspect.signature(cls).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        of_config = {"config", *ARGUMENTS, *inspect.signature(cls.config_class).parameters}
        names = (overrides if takes_any else parameters).keys() - of_config
        constructor = {name: overrides.pop(name) for name in [*overrides] if name in names}
        options = {name: value for name, value in options.items() if name not in constructor}
        if config is None and cls.config_class is not AlbertConfig:
            config = cls.config_class.from_pretrained(pretrained_model_name_or_path or "", **hub, **overrides)
            options = {name: value for name, value in options.items() if name not in overrides}
        loaded_config, arrays = formats.load(
            pretrained_model_name_or_path,
            config,
            None if state_dict is None else to_arrays(state_dict),
            **options,
        )
        wanted_dtype = choose_dtype(one_of(dtype=dtype, torch_dtype=torch_dtype), arrays)
        model, report = cls.from_arrays(
            loaded_config.replace(dtype=wanted_dtype),
            arrays,
            *model_args,
            ignore_mismatched_sizes=ignore_mismatched_sizes,
            **constructor,
        )
        model.to(device=choose_device(device_map), dtype=wanted_dtype)
        model.name_or_path = model.config.name_or_path = str(pretrained_model_name_or_path or "")
        if not report.ok:
            source = pretrained_model_name_or_path or "the given tensors"
            warn_caller(f"{cls.__name__} from {source}: {report}")
        if output_loading_info:
            return cast(Self, (model, report.loading_info()))  # the annotation describes the usual call
        return model

    @classmethod
    def load_tf_weights(cls, config: AlbertConfig, tf_checkpoint_path: str | Path) -> Self:
        """Return a model with this config and the weights of a TensorFlow checkpoint."""
        return cls.from_pretrained(tf_checkpoint_path, config=config)

    @classmethod
    def from_arrays(
        cls,
        config: AlbertConfig,
        arrays: Arrays,
        *model_args: Any,
        ignore_mismatched_sizes: bool = False,
        **constructor: Any,
    ) -> tuple[Self, LoadReport]:
        """Return a model in evaluation mode and a load report. The parameters share the arrays' memory.

        Args:
            config: The config of the model.
            arrays: Tensors by name. Missing tensors of the head are initialized.
            ignore_mismatched_sizes: Whether to initialize tensors of a different shape instead of raising.
            model_args: Other arguments of the class.
            constructor: Other arguments of the class, by name.
        """
        # On the meta device, the constructor allocates and initializes nothing; only shapes exist. Classes of
        # other packages may have buffers and parameters that only their constructors can initialize.
        with torch.device("meta") if cls.__module__.startswith("albertkit.") else nullcontext():
            model = cls(config, *model_args, **constructor)
        state = model.state_dict()
        buffers = {name for name, _ in model.named_buffers() if name in state}
        expected = {name: tensor.shape for name, tensor in state.items() if name not in buffers}
        weights = {name: array for name, array in arrays.items() if name not in buffers}
        tied = shared_names(model.config)
        matched, report = match(weights, expected, tied=tied, ignore_mismatched_sizes=ignore_mismatched_sizes)
        new = [name for name in expected if name not in matched]
        for name in new:
            if state[name].is_meta:
                state[name] = torch.zeros(expected[name])
        stored = {name: arrays[name] for name in buffers if name in arrays}
        model.load_state_dict(state | to_tensors(matched | stored), assign=True)
        # Until they are tied again, tied names have separate parameters, and new ones replace no loaded ones.
        model.initialize(new)
        model.tie_weights()
        return model.eval(), report

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        is_main_process: bool = True,
        state_dict: Mapping[str, Tensor] | None = None,
        save_function: Callable[..., Any] | None = None,  # noqa: ARG002
        push_to_hub: bool = False,
        safe_serialization: bool = True,
        max_shard_size: int | str | None = None,
    ) -> None:
        """Write `config.json` and `model.safetensors`, which `transformers` reads as well.

        Args:
            save_directory: The folder; it is created if it does not exist. A model in it is replaced
                completely or not at all.
            is_main_process: Whether this process writes. In distributed training, call this method in all
                processes; those with False do nothing.
            state_dict: Tensors to write instead of the model's own.
            save_function: Has no effect, as in `transformers` for safetensors.
            push_to_hub: Must be False.
            safe_serialization: Must be True, because pickled weights can run code when they are loaded.
            max_shard_size: Maximum size of a file, in bytes or as text such as "500MB". Larger weights are
                split into several files with an index. None writes a single file.

        Raises:
            ConfigError: `hidden_act` is a function, `safe_serialization=False` or `push_to_hub=True`.
            CheckpointError: The folder cannot be written.
        """
        if not safe_serialization:
            raise ConfigError("only safetensors are supported. Keep safe_serialization=True.")
        refuse_push_to_hub(push_to_hub, save_directory)
        if not is_main_process:
            return
        config = self.config.replace(architectures=[type(self).__name__], dtype=self.dtype)
        write_folder(
            save_directory,
            config.to_dict(),
            to_arrays(self.state_dict() if state_dict is None else state_dict),
            beside=files_of(config),
            max_shard_size=max_shard_size,
        )

    def to_transformers(self) -> Any:
        """Return a model of `transformers`, of the class with the same name. Both share their parameters.

        It is for tools that accept only the classes of `transformers`, which must be installed.

        Raises:
            ConfigError: `hidden_act` is a function.
        """
        import transformers

        name = next(base.__name__ for base in type(self).__mro__ if base.__name__ in HEADS)
        values = self.config.to_dict()
        if name == "AlbertForQuestionAnswering":  # the number of its outputs is `num_labels` there
            values |= {"num_labels": 2, "id2label": None, "label2id": None}
        values["attn_implementation"] = self.config.attn_implementation
        config = transformers.AlbertConfig(**values)
        with torch.device("meta"):
            options = {"add_pooling_layer": False} if name == ENCODER and self.pooler is None else {}
            model = getattr(transformers, name)(config, **options)
        missing, _ = model.load_state_dict(self.state_dict(keep_vars=True), strict=False, assign=True)
        assert not missing, missing
        embeddings, length = model.base_model.embeddings, config.max_position_embeddings
        embeddings.position_ids = torch.arange(length, device=self.device)[None]
        embeddings.token_type_ids = torch.zeros_like(embeddings.position_ids)
        model.name_or_path = self.name_or_path
        return model.train(self.training)

    # --- embeddings -----------------------------------------------------------------------------

    def get_output_embeddings(self) -> AlbertDecoder | nn.Linear | None:
        """Return the decoder that maps E to the vocabulary V, or None if the model has no decoder."""
        return None

    def set_output_embeddings(self, value: AlbertDecoder | nn.Linear) -> None:
        """Replace the decoder and its bias."""
        raise NotImplementedError(f"{type(self).__name__} has no decoder to replace with {value}")

    def tie_weights(self) -> None:
        """Use the word embeddings as the decoder's matrix if `config.tie_word_embeddings` is set."""
        decoder = self.get_output_embeddings()
        if decoder is not None and self.config.tie_word_embeddings:
            decoder.weight = self.get_input_embeddings().weight

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Embedding:
        """Change the vocabulary size of the embeddings, the decoder, the bias and the config together.

        The remaining tokens keep their embeddings.

        Args:
            new_num_tokens: Number of tokens; None for the current number.
            pad_to_multiple_of: Round the number of tokens up to a multiple of this number.
            mean_resizing: Whether to draw new embeddings close to the mean of the old ones, as `transformers`
                does. False draws them as at initialization.

        Returns:
            The word embeddings.
        """
        old, config = self.get_input_embeddings(), self.config
        size = old.num_embeddings if new_num_tokens is None else int(new_num_tokens)
        if pad_to_multiple_of is not None:
            size = -(-size // pad_to_multiple_of) * pad_to_multiple_of
        if size == old.num_embeddings:
            return old
        if size <= config.pad_token_id:
            raise ConfigError(f"new_num_tokens is {size}, but pad_token_id {config.pad_token_id} must stay")
        std = config.initializer_range
        rows = _resize_rows(old.weight, size, std=std, around_mean=mean_resizing)
        self.set_input_embeddings(
            nn.Embedding.from_pretrained(
                rows, freeze=not old.weight.requires_grad, padding_idx=old.padding_idx
            )
        )
        decoder = self.get_output_embeddings()
        if decoder is not None:
            decoder.weight = _resize_rows(decoder.weight, size, std=std, around_mean=mean_resizing)
            draws = mean_resizing and not config.tie_word_embeddings
            bias = decoder.bias.detach()
            new_bias = bias.mean(dtype=torch.float32) if draws else 0.0
            bias = F.pad(bias[:size], (0, max(0, size - len(bias))), value=float(new_bias)).clone()
            decoder.bias = nn.Parameter(bias, requires_grad=decoder.bias.requires_grad)
            decoder.out_features = size
            self.set_output_embeddings(decoder)
        config.vocab_size = size
        self.tie_weights()
        return self.get_input_embeddings()

    # --- what trainers and adapter libraries use -------------------------------------------------

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
        # Replicas of nn.DataParallel have plain tensors instead of parameters.
        return next(self.parameters(), self.get_input_embeddings().weight)

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

        The settings have no effect: layers are recomputed as with `use_reentrant=False`, which gives the same
        gradients as True.
        """
        del gradient_checkpointing_kwargs
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
        """Call `gradient_checkpointing_enable`. Every layer is recomputed; nothing is offloaded."""
        del every_n_layers, offload
        self.gradient_checkpointing_enable(activation_checkpointing_kwargs)

    activation_checkpointing_disable = gradient_checkpointing_disable
    """The newer name of `gradient_checkpointing_disable`."""

    @property
    def is_gradient_checkpointing(self) -> bool:
        """Whether layers are recomputed in the backward pass."""
        return self.base_model.encoder.gradient_checkpointing

    is_activation_checkpointing = is_gradient_checkpointing
    """The newer name of `is_gradient_checkpointing`."""

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

    # --- outputs --------------------------------------------------------------------------------

    def finish(self, output: Output, return_dict: bool | None) -> Output:
        """Return the output as a dataclass, or as a tuple of the fields that are set.

        `torch.jit.trace` and `nn.DataParallel` do not accept dataclasses, so they get a named tuple.
        """
        wants_dataclass = self.config.return_dict if return_dict is None else return_dict
        # A tuple supports every index and slice of the dataclass, so the annotation still fits.
        if not wants_dataclass:
            return cast(Output, output.to_tuple())
        is_traced = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        if is_traced or getattr(self, "_is_replica", False):
            return cast(Output, make_output(type(output).__name__, **vars(output)))
        return output


# --- the vocabulary ---------------------------------------------------------------------------

NEW_ROW_VARIANCE = 1e-9
"""Variance of new rows around the mean of the old rows, relative to the variance of the old rows."""


@torch.no_grad()
def _resize_rows(old: Tensor, size: int, *, std: float, around_mean: bool) -> nn.Parameter:
    """Return `size` rows that begin with the old rows.

    Args:
        old: The old rows, (V, E).
        size: Number of rows to return.
        std: Standard deviation of new rows that are drawn as at initialization.
        around_mean: Whether to draw new rows close to the mean of the old rows instead. A new token then has
            roughly the mean probability, which changes the other probabilities least.
    """
    new = old.new_empty((size, *old.shape[1:]))
    kept = min(size, len(old))
    if around_mean and size > kept:
        rows = old.float()
        mean = rows.mean(dim=0)
        covariance = (rows - mean).T @ (rows - mean) / len(rows)  # (E, E)
        values, vectors = torch.linalg.eigh(NEW_ROW_VARIANCE * covariance)
        normal = torch.randn(size - kept, len(mean), device=old.device)
        new[kept:] = mean + (normal * values.clamp(min=0).sqrt()) @ vectors.T
    else:
        nn.init.trunc_normal_(new[kept:], std=std, a=-2 * std, b=2 * std)
    new[:kept] = old[:kept]
    return nn.Parameter(new, requires_grad=old.requires_grad)


# --- scores -----------------------------------------------------------------------------------


class ModuleNetwork:
    """The operations of `heads.Network`, computed by the modules of a model."""

    def __init__(self, model: AlbertPreTrainedModel) -> None:
        self.config = model.config
        self._model: Any = model

    def linear(self, values: Tensor, name: str) -> Tensor:
        return self._model.get_submodule(name)(values)

    layer_norm = activate = linear

    def pool(self, states: Tensor) -> Tensor:
        return self._model.base_model.pool(states)

    def multiply_by_words(self, values: Tensor, bias: str) -> Tensor:  # noqa: ARG002
        return self._model.get_output_embeddings()(values)

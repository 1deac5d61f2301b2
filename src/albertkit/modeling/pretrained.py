"""AlbertPreTrainedModel: everything in an ALBERT model besides its forward pass.

Initialization, loading and saving, embeddings and their tying, head pruning, gradient checkpointing.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from albertkit.checkpoints import formats
from albertkit.checkpoints.arrays import Arrays, to_arrays, to_tensors
from albertkit.checkpoints.folder import write_folder
from albertkit.checkpoints.names import TIED, shared_names
from albertkit.checkpoints.report import LoadReport, match
from albertkit.checkpoints.sentence_modules import files_of
from albertkit.config import AlbertConfig
from albertkit.config_fields import one_of
from albertkit.devices import choose_device, choose_dtype
from albertkit.errors import ConfigError
from albertkit.hub import refuse_push_to_hub, split_hub_options, take_loading_options
from albertkit.hub_upload import PushToHub
from albertkit.modeling.outputs import ModelOutput
from albertkit.modeling.resizing import resize_vocabulary
from albertkit.modeling.switches import TrainingSwitches
from albertkit.tuple_outputs import make_output

Output = TypeVar("Output", bound=ModelOutput)


class AlbertPreTrainedModel(TrainingSwitches, PushToHub):
    """Base class of all ALBERT models.

    A model with a head keeps its encoder as `self.albert`; the bare encoder is its own base model.
    """

    config_class: ClassVar[type[AlbertConfig]] = AlbertConfig
    base_model_prefix: ClassVar[str] = "albert"
    main_input_name: ClassVar[str] = "input_ids"
    _keys_to_ignore_on_save: ClassVar[list[str] | None] = None

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        if not isinstance(config, AlbertConfig):
            raise ConfigError(f"{type(self).__name__} needs an AlbertConfig, got {type(config).__name__}")
        config.validate()
        self.config = config
        self.num_labels = config.num_labels
        self.name_or_path = ""
        """The name that `from_pretrained` was called with. PEFT records it in the config of an adapter."""

    # --- initialization -------------------------------------------------------------------------

    def post_init(self) -> None:
        """Initialize the parameters of this class and tie weights. Every constructor ends with it.

        As in the original, matrices are drawn from a normal distribution with standard deviation
        `initializer_range`, truncated at two deviations; biases are 0, LayerNorm weights 1. The encoder
        is drawn first, so it depends only on the seed, not on the head.
        """
        encoder = f"{self.base_model_prefix}."
        self.initialize(name for name, _ in self.named_parameters() if not name.startswith(encoder))
        self.tie_weights()

    def init_weights(self) -> None:
        """Older name of `post_init`."""
        self.post_init()

    @torch.no_grad()
    def initialize(self, names: Iterable[str]) -> None:
        """Initialize these parameters, in the given order, from torch's global generator."""
        parameters = dict(self.named_parameters(remove_duplicate=False))
        std = self.config.initializer_range
        for name in names:
            parameter = parameters[name]
            if parameter.is_meta:
                continue
            if name.endswith("bias"):
                parameter.zero_()
            elif parameter.dim() == 1:  # the only vectors that are not biases scale a LayerNorm
                parameter.fill_(1.0)
            else:
                nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std)

    def score(self, states: Tensor, output: str = "logits") -> Tensor:
        """Return an output of the head from last hidden states, without dropout.

        Args:
            states: (P, H) of single tokens; for scores of whole texts, of [CLS].
            output: one of the `scores` of `heads.HEADS`.

        Returns:
            Scores (P, K) of each token.
        """
        raise NotImplementedError(f"{type(self).__name__} has no scores {output!r} of {states.shape}")

    # --- files ----------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path | None,
        *,
        config: AlbertConfig | str | Path | None = None,
        state_dict: Mapping[str, Tensor] | None = None,
        dtype: torch.dtype | str | None = None,
        torch_dtype: torch.dtype | str | None = None,
        device_map: str | torch.device | Mapping[str, str | int | torch.device] | None = None,
        ignore_mismatched_sizes: bool = False,
        output_loading_info: bool = False,
        **options: Any,
    ) -> Self:
        """Load a model from a folder or from the hub, in evaluation mode.

        The checkpoint may have only the encoder, or a model with any head. Missing tensors of the head are
        initialized. A warning lists them, and the tensors that this model does not have.

        Args:
            pretrained_model_name_or_path: "bundled", a folder, a hub name, or a checkpoint of another library
                (TensorFlow: folder, prefix or archive; Julia: `.tfbson`); None if both `config` and
                `state_dict` are passed.
            config: a config, or where to find one, instead of the checkpoint's own.
            state_dict: tensors instead of the checkpoint's own.
            dtype: data type of the weights, such as torch.float16 or "float16"; "auto" = as in the file;
                default float32.
            torch_dtype: older name of `dtype`.
            device_map: "auto" = the best single device (CUDA, then MPS, then CPU), or a device;
                default CPU.
            ignore_mismatched_sizes: whether to initialize tensors of another shape instead of raising.
            output_loading_info: whether to return (model, info), where info has the sets `missing_keys`,
                `unexpected_keys` and `mismatched_keys`, and the complete `report`.
            options: arguments of `AlbertConfig`, such as `num_labels=3`, or else of this class, such as
                `add_pooling_layer=False`; `revision`, `cache_dir`, `token`, `local_files_only` and
                `subfolder` (`hub.HubOptions`); and loading options of `transformers`
                (`hub.take_loading_options`).

        Returns:
            The model (of this class), or (model, info).

        Raises:
            ModelNotFoundError: the name or folder has no model.
            ConfigError: the config is not an ALBERT config, or an option is unknown, unsupported or does not
                fit.
            CheckpointError: encoder tensors are missing or have another shape, or a file is damaged.
        """
        hub, options = split_hub_options(options)
        constructor, overrides = formats.split_options(cls, take_loading_options(options))
        loaded_config, arrays = formats.load(
            pretrained_model_name_or_path,
            config=config,
            state_dict=None if state_dict is None else to_arrays(state_dict),
            overrides=overrides,
            safetensors_only=options.get("use_safetensors") is True,
            **hub,
        )
        wanted_dtype = choose_dtype(one_of(dtype=dtype, torch_dtype=torch_dtype), arrays)
        final_config = loaded_config.replace(dtype=wanted_dtype)
        model, report = cls.from_arrays(
            final_config, arrays, ignore_mismatched_sizes=ignore_mismatched_sizes, **constructor
        )
        model.to(device=choose_device(device_map), dtype=wanted_dtype)
        model.name_or_path = model.config.name_or_path = str(pretrained_model_name_or_path or "")
        if not report.ok:
            source = pretrained_model_name_or_path or "the given tensors"
            warnings.warn(f"{cls.__name__} from {source}: {report}", UserWarning, stacklevel=2)
        if output_loading_info:
            return cast(Self, (model, report.loading_info()))  # typed for the usual call
        return model

    @classmethod
    def load_tf_weights(cls, config: AlbertConfig, tf_checkpoint_path: str | Path) -> Self:
        """Load the weights of a TensorFlow checkpoint into a model of that config; see `from_pretrained`."""
        return cls.from_pretrained(tf_checkpoint_path, config=config)

    @classmethod
    def from_arrays(
        cls,
        config: AlbertConfig,
        arrays: Arrays,
        *,
        ignore_mismatched_sizes: bool = False,
        **constructor: Any,
    ) -> tuple[Self, LoadReport]:
        """Return a model in evaluation mode whose parameters share the arrays' memory, and a report.

        Args:
            config: its config.
            arrays: tensors by name; missing ones are initialized.
            ignore_mismatched_sizes: whether to initialize tensors of another shape instead of raising.
            constructor: further arguments of the class.

        Raises:
            CheckpointError: a tensor of the encoder is missing, or a tensor has another shape.
        """
        # On the meta device nothing is allocated or drawn: there are only shapes to fill.
        with torch.device("meta"):
            model = cls(config, **constructor)
        report = model._fill(arrays, ignore_mismatched_sizes=ignore_mismatched_sizes)
        return model.eval(), report

    def _fill(self, arrays: Arrays, *, ignore_mismatched_sizes: bool) -> LoadReport:
        expected = {name: parameter.shape for name, parameter in self.state_dict().items()}
        tied = shared_names(self.config)
        matched, report = match(arrays, expected, tied=tied, ignore_mismatched_sizes=ignore_mismatched_sizes)
        new = [name for name in expected if name not in matched]
        drawn = {name: torch.empty(expected[name]) for name in new}
        self.load_state_dict(to_tensors(matched) | drawn, assign=True)
        self.tie_weights()  # assigning gave each name a separate parameter
        self.initialize(new)
        return report

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
            save_directory: created if missing. A model in it is replaced completely or not at all.
            is_main_process: whether this process writes. In distributed training all processes call this
                method; False does nothing.
            state_dict: tensors to write instead of the model's own.
            save_function: has no effect, as in `transformers` for safetensors.
            push_to_hub: must be False.
            safe_serialization: must be True: pickled weights can run code when loaded.
            max_shard_size: bytes, or text such as "500MB": larger weights are split into files of at most
                that size, with an index. None for one file.

        Raises:
            ConfigError: `hidden_act` is a function, `safe_serialization=False` or `push_to_hub=True`.
            CheckpointError: the folder cannot be written.
        """
        if not safe_serialization:
            raise ConfigError("only safetensors are supported. Keep safe_serialization=True.")
        refuse_push_to_hub(push_to_hub, save_directory)
        if not is_main_process:
            return
        config = self.config.replace(architectures=[type(self).__name__], dtype=self.dtype)
        tensors = nn.Module.state_dict(self) if state_dict is None else self._without_copies(state_dict)
        write_folder(
            save_directory,
            config.to_dict(),
            to_arrays(tensors),
            beside=files_of(config),
            max_shard_size=max_shard_size,
        )

    def _without_copies(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Remove the second names of tied tensors, which `state_dict` of a model with a decoder copies."""
        tied = TIED if self.config.tie_word_embeddings else {}
        return {
            name: tensor
            for name, tensor in tensors.items()
            if name not in tied or tied[name] not in tensors or not torch.equal(tensor, tensors[tied[name]])
        }

    # --- embeddings -----------------------------------------------------------------------------

    @property
    def base_model(self) -> "AlbertPreTrainedModel":
        """The encoder: `self.albert`, or this model if it is the encoder."""
        return getattr(self, self.base_model_prefix, self)

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the word embeddings, V x E."""
        return self.base_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the word embeddings; call `tie_weights` to update a tied decoder."""
        self.base_model.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Linear | None:
        """Return the decoder that maps to the vocabulary, E -> V, or None for models without one."""
        return None

    def set_output_embeddings(self, value: nn.Linear) -> None:
        """Replace the decoder and its bias.

        Raises:
            ConfigError: this model has no decoder.
        """
        raise ConfigError(f"{type(self).__name__} has no output embeddings to replace by {value}")

    def tie_weights(self) -> None:
        """Make the decoder use the word embeddings as its matrix, if the config says so."""
        decoder = self.get_output_embeddings()
        if decoder is not None and self.config.tie_word_embeddings:
            decoder.weight = self.get_input_embeddings().weight

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Embedding:
        """Change the vocabulary size: embeddings, decoder, bias and config together.

        The rows of remaining tokens are kept.

        Args:
            new_num_tokens: number of tokens; None for the current number.
            pad_to_multiple_of: round that number up to a multiple of this number.
            mean_resizing: whether to draw new rows close to the mean of the old ones, as `transformers` does.
                False draws them as at initialization.

        Raises:
            ConfigError: there are fewer tokens than the padding token's id needs, the multiple is below 1, or
                a value is not a whole number.
        """
        return resize_vocabulary(self, new_num_tokens, pad_to_multiple_of, around_mean=mean_resizing)

    # --- the encoder's switches -----------------------------------------------------------------

    def prune_heads(self, heads_to_prune: Mapping[int, Iterable[int]]) -> None:
        """Remove attention heads: {layer: heads, numbered as before any pruning}.

        Layers are those with their own weights, counted through the groups: layer
        `group * inner_group_num + inner`. A shared layer loses the heads wherever it is applied.
        `config.pruned_heads` records them, so a saved model loads with its smaller shape (in albertkit;
        `transformers` 5 has no pruned ALBERT). A head mask keeps the old numbers; returned attentions
        have only the remaining heads.

        Raises:
            ConfigError: a layer or head does not exist, or no head would be left.
        """
        self.base_model.prune_heads(heads_to_prune)

    def set_attn_implementation(self, attn_implementation: Literal["sdpa", "eager"]) -> None:
        """Choose the attention implementation for all later calls.

        Raises:
            ConfigError: the implementation is unknown.
        """
        self.config.replace(attn_implementation=attn_implementation)  # raises if it is unknown
        self.config.attn_implementation = attn_implementation

    def finish(self, output: Output, return_dict: bool | None) -> Output:
        """Return the output, or the tuple of its set fields if a tuple was requested.

        `torch.jit.trace` and `nn.DataParallel` do not accept dataclasses, so they get a tuple with names.
        """
        wants_dataclass = self.config.return_dict if return_dict is None else return_dict
        # A tuple supports every index and slice of the dataclass, so the annotated type stays the dataclass.
        if not wants_dataclass:
            return cast(Output, output.to_tuple())
        is_traced = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        if is_traced or getattr(self, "_is_replica", False):
            return cast(Output, make_output(type(output).__name__, **vars(output)))
        return output

    # --- facts ----------------------------------------------------------------------------------

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
        # The replicas of nn.DataParallel have tensors instead of parameters.
        return self.get_input_embeddings().weight

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Return the number of parameters; shared and tied ones are counted once."""
        embeddings = {id(module.weight) for module in self.modules() if isinstance(module, nn.Embedding)}
        return sum(
            parameter.numel()
            for parameter in self.parameters()
            if (parameter.requires_grad or not only_trainable)
            and not (exclude_embeddings and id(parameter) in embeddings)
        )

    def get_memory_footprint(self, return_buffers: bool = True) -> int:
        """Bytes of the parameters, shared ones counted once, and by default of the buffers."""
        buffers = self.buffers() if return_buffers else ()
        return sum(tensor.nbytes for tensor in (*self.parameters(), *buffers))

    @classmethod
    def can_generate(cls) -> bool:
        """Return False: an ALBERT cannot generate text."""
        return False

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """A tiny batch for tracing."""
        return {"input_ids": torch.tensor([[self.config.bos_token_id, 5, 6, self.config.eos_token_id]])}

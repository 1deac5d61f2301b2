"""TFAlbertPreTrainedModel: everything that a Keras ALBERT model needs besides its forward pass.

It reads inputs, loads and saves models, and computes the losses and metrics of `compile`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np

from albertkit.checkpoints import formats
from albertkit.checkpoints.folder import write_folder
from albertkit.checkpoints.match import LoadReport, match
from albertkit.checkpoints.names import canonical, shared_names
from albertkit.checkpoints.sentence_modules import files_of
from albertkit.config import AlbertConfig, as_config
from albertkit.errors import ConfigError, DataError, suggestion, warn_caller
from albertkit.heads import BASE_PREFIX, ENCODER, HEADS, Head
from albertkit.hub import refuse_push_to_hub
from albertkit.hub_upload import PushToHub
from albertkit.keras.layers import (
    AlbertMainLayer,
    AlbertMLMHead,
    AlbertSOPHead,
    Tensor,
    initializer,
    keras,
    make_dense,
    make_dropout,
    ops,
    uninitialized,
)
from albertkit.keras.tensorflow_only import batches_of, collate, write_saved_model
from albertkit.model_inputs import NAMES, TABLES, check_range, check_shapes
from albertkit.tuple_outputs import make_output


class TFAlbertPreTrainedModel(keras.Model, PushToHub):
    """Base class of all Keras ALBERT models: a `keras.Model` whose variables exist after construction.

    Args:
        config: The config of the model.
        options: The Keras options `name`, `dtype` (a policy such as "mixed_bfloat16") and `trainable`.
    """

    config_class: ClassVar[type[AlbertConfig]] = AlbertConfig
    architecture: ClassVar[str]
    """Name of the PyTorch class with the same head."""
    output_name: ClassVar[str]
    """Name of the output class in PyTorch."""
    label_names: ClassVar[tuple[str, ...]] = ("labels",)
    """The columns of a data set with the labels for `scores`, in the same order."""

    def __init__(self, config: AlbertConfig, **options: Any) -> None:
        config = as_config(config)
        config.validate()
        super().__init__(**options)
        self.config = config
        self.num_labels = config.num_labels
        with keras.name_scope(self.name):
            names = {spec.ours for spec in self.head.tensors}
            self.albert = AlbertMainLayer(self, "albert", add_pooling_layer="pooler.weight" in names)
            if "predictions.bias" in names:
                table = self.get_input_embeddings() if config.tie_word_embeddings else None
                self.predictions = AlbertMLMHead(self, "predictions", table=table)
            if "sop_classifier.classifier.weight" in names:
                self.sop_classifier = AlbertSOPHead(self, "sop_classifier")
            if "classifier.weight" in names:
                self.dropout = make_dropout(self, config.classifier_dropout_prob)
                num_scores = self.head.size("K", config)
                self.classifier = make_dense(self, "classifier", config.hidden_size, num_scores)
            if "qa_outputs.weight" in names:
                self.qa_outputs = make_dense(self, "qa_outputs", config.hidden_size, 2)
        self.built = True

    @property
    def head(self) -> Head:
        """The head of this class."""
        return HEADS[self.architecture]

    @property
    def scores(self) -> tuple[str, ...]:
        """The entries of the output that losses and metrics compare with labels, in order."""
        if self.architecture == ENCODER:
            return ()
        return tuple(name for scores in self.head.scores.values() for name in scores.names)

    def __call__(
        self,
        inputs: Any = None,
        *more: Any,
        training: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **named: Any,
    ) -> Any:
        """Compute the outputs of a batch.

        Args:
            inputs: `input_ids`; or all inputs as a list in the order below or as a dict; or None if all
                inputs are passed by name.
            more: The inputs after the first by position, in the order below.
            named: Inputs by name.
            input_ids: (B, T) token ids; or pass `inputs_embeds`.
            attention_mask: (B, T), 1 = token, 0 = padding; or (B, T, T) or (B, 1, T, T), with 1 where the
                query (row) may attend to the key (column).
            token_type_ids: (B, T), 0 = first segment (default), 1 = second segment.
            position_ids: (B, T), (1, T) or (T,), default 0 ... T - 1.
            head_mask: (N,) for all layers or (L, N), 1 = keep the head, 0 = disable it.
            inputs_embeds: (B, T, E) instead of `input_ids`.
            training: Whether to apply dropout; default False, but True inside `fit`.
            output_attentions: Whether to also return the attention probabilities of each executed layer, each
                (B, N, T, T). For this option and the next two, None uses the config's setting. The three
                options may also be keys of a dict of inputs.
            output_hidden_states: Whether to also return `hidden_states`, each (B, T, H).
            return_dict: Whether to return a `TupleOutput` or, if False, a plain tuple.

        Returns:
            A `TupleOutput`, which is a named tuple, or a plain tuple with `return_dict=False`.
            `hidden_states` contains the mapped embeddings and the output of each executed layer, including
            inner layers.

        Raises:
            ValueError: An input is unknown, passed twice, or has the wrong type or shape.
            IndexError: An id, segment or position has no embedding.
        """
        options = {
            "output_attentions": output_attentions,
            "output_hidden_states": output_hidden_states,
            "return_dict": return_dict,
        }
        if isinstance(inputs, Mapping):
            options = {name: inputs.get(name) if value is None else value for name, value in options.items()}
            inputs = {name: value for name, value in inputs.items() if name not in options}
        has_names = options.pop("return_dict")
        output = super().__call__(self._tensors(inputs, more, named), training=training, **options)
        return output if (self.config.return_dict if has_names is None else has_names) else tuple(output)

    def stateless_call(
        self, trainable_variables: Any, non_trainable_variables: Any, *inputs: Any, **options: Any
    ) -> Any:
        """Compute `__call__` as a function that also takes the variables; JAX training needs it."""
        named = {name: options.pop(name) for name in NAMES if name in options}
        tensors = self._tensors(inputs[0] if inputs else None, inputs[1:], named)
        return super().stateless_call(trainable_variables, non_trainable_variables, tensors, **options)

    def _tensors(self, first: Any, more: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the inputs by name, as checked tensors of the backend, integers as int32.

        While a function is compiled, values are not known and not checked: an id without an embedding then
        gives NaN.
        """
        inputs, config = name_inputs(first, more, named), self.config
        tensors = {name: _as_tensor(name, value, config) for name, value in inputs.items()}
        check_shapes([tensors.get(name) for name in NAMES], config, choices=self.head.has_choices)
        return tensors

    def call(
        self,
        inputs: dict[str, Tensor],
        training: bool = False,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Any:
        """Compute the result of `__call__` from checked inputs. Call the model instead of this method."""
        rows = inputs
        if self.head.has_choices:  # (B, C, ...) -> (B*C, ...); values for all rows, (T,), stay as they are
            rows = {
                name: value
                if name == "head_mask" or len(value.shape) == 1
                else ops.reshape(value, (-1, *ops.shape(value)[2:]))
                for name, value in inputs.items()
            }
        # The trainer for JAX does not call `__call__`, which would pass `training` to inner layers.
        encoded = self.albert(
            rows,
            training=training,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
        )
        network, entries = LayerNetwork(self, training), {}
        states = encoded.last_hidden_state
        for scores in self.head.scores.values():
            values = scores.compute(network, states[:, 0] if scores.reads_first else states)
            columns = [values] if len(scores.names) == 1 else ops.unstack(values, axis=-1)
            entries |= zip(scores.names, columns, strict=True)
        if self.head.has_choices:
            choices = ops.shape(inputs["input_ids" if "input_ids" in inputs else "inputs_embeds"])[1]
            entries = {name: ops.reshape(scores, (-1, choices)) for name, scores in entries.items()}
        return make_output(
            self.output_name,
            **entries,
            hidden_states=getattr(encoded, "hidden_states", None),
            attentions=getattr(encoded, "attentions", None),
        )

    # --- files ----------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *model_args: Any,
        config: AlbertConfig | str | Path | None = None,
        dtype: Any = None,
        name: str | None = None,
        ignore_mismatched_sizes: bool = False,
        output_loading_info: bool = False,
        from_pt: bool = False,  # noqa: ARG003
        **options: Any,
    ) -> Self:
        """Load a model from a folder or the hub, in any format that albertkit reads.

        The checkpoint may contain only the encoder, or a model with any head. Missing tensors of the head are
        initialized. A warning lists these tensors, and tensors of the checkpoint that this model does not
        use.

        Args:
            pretrained_model_name_or_path: "bundled", a folder, a hub name, or a checkpoint of another library
                (TensorFlow: folder, prefix or archive; Julia: `.tfbson`). With `config`, also a single file
                of weights, such as `pytorch_model.bin`.
            model_args: Positional arguments of this class after `config`.
            config: A config, or its file, folder or hub name, instead of the checkpoint's config.
            dtype: A Keras policy, such as "mixed_bfloat16"; default is the global policy.
            name: Name of the Keras model.
            ignore_mismatched_sizes: Whether to initialize tensors of a different shape instead of raising.
            output_loading_info: Whether to return (model, info), as the PyTorch classes do.
            from_pt: Has no effect: PyTorch weights are always read.
            options: Arguments of `AlbertConfig`, such as `num_labels=3`; hub options `revision`, `cache_dir`,
                `token`, `local_files_only` and `subfolder` (see `hub.HubOptions`); and loading options of
                `transformers` (see `hub.take_loading_options`).

        Returns:
            The model, or (model, info) with `output_loading_info`.

        Raises:
            ModelNotFoundError: The name or folder has no model.
            ConfigError: The config is not an ALBERT config, or an option is unknown, unsupported or
                inconsistent with the others.
            CheckpointError: Encoder tensors are missing or have a different shape, or a file is damaged.
        """
        loaded_config, tensors = formats.load(pretrained_model_name_or_path, config, **options)
        with uninitialized():
            model = cls(loaded_config, *model_args, name=name, dtype=dtype)
        report = fill(model, tensors, ignore_mismatched_sizes=ignore_mismatched_sizes)
        if not report.ok:
            warn_caller(f"{cls.__name__} from {pretrained_model_name_or_path}: {report}")
        if output_loading_info:
            return cast(Self, (model, report.loading_info()))  # the annotation describes the usual call
        return model

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        saved_model: bool = False,
        version: int = 1,
        push_to_hub: bool = False,
        max_shard_size: int | str | None = None,
    ) -> None:
        """Write `config.json` and `model.safetensors`, which the PyTorch classes read.

        Args:
            save_directory: The folder; it is created if it does not exist. A model in it is replaced
                completely or not at all.
            saved_model: Whether to also write a TensorFlow SavedModel to `saved_model/VERSION`, for
                TensorFlow Serving. Its inputs are `input_ids`, `attention_mask` and `token_type_ids`.
            version: Version number of the SavedModel.
            push_to_hub: Must be False.
            max_shard_size: Maximum size of a weights file, in bytes or as text such as "500MB". None writes a
                single file.

        Raises:
            ConfigError: `hidden_act` is a function, `push_to_hub` is True, or a SavedModel is requested with
                a backend other than TensorFlow.
            CheckpointError: The folder cannot be written.
        """
        refuse_push_to_hub(push_to_hub, save_directory)
        if saved_model and keras.backend.backend() != "tensorflow":
            raise ConfigError(
                f"saved_model=True needs the TensorFlow backend, but Keras runs on {keras.backend.backend()}."
            )
        config = self.config.replace(architectures=[self.architecture], dtype=self.variable_dtype)
        write_folder(
            save_directory,
            config.to_dict(),
            tensors_of(self),
            beside=files_of(config),
            max_shard_size=max_shard_size,
        )
        if saved_model:
            write_saved_model(self, Path(save_directory) / "saved_model" / str(version))

    def get_config(self) -> dict[str, Any]:
        """Return the config that a `.keras` file contains besides the weights."""
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(
        cls, config: AlbertConfig | dict[str, Any], custom_objects: Any = None, **options: Any
    ) -> Self:
        """Return a newly initialized model.

        Args:
            config: A config, or the result of `get_config` from a `.keras` file.
            custom_objects: Has no effect.
            options: The Keras options `name`, `dtype` and `trainable`.
        """
        del custom_objects
        if not isinstance(config, dict):
            return cls(config, **options)
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])}, **options)

    # --- training -------------------------------------------------------------------------------

    def fit(self, x: Any = None, y: Any = None, *more: Any, **options: Any) -> Any:
        """Train as `keras.Model.fit` does. `x` and `validation_data[0]` can be the output of a tokenizer.

        Raises:
            DataError: The model was compiled with a loss, but there are no labels.
        """
        if isinstance(options.get("validation_data"), tuple | list):
            options["validation_data"] = tuple(map(_as_dict, options["validation_data"]))
        self._check_labels(x, y)
        return super().fit(_as_dict(x), y, *more, **options)

    def evaluate(self, x: Any = None, y: Any = None, *more: Any, **options: Any) -> Any:
        """Compute loss and metrics as `keras.Model.evaluate` does. `x` can be the output of a tokenizer.

        Raises:
            DataError: The model was compiled with a loss, but there are no labels.
        """
        self._check_labels(x, y)
        return super().evaluate(_as_dict(x), y, *more, **options)

    def predict(self, x: Any, *more: Any, **options: Any) -> Any:
        """Compute the outputs as `keras.Model.predict` does. `x` can be the output of a tokenizer."""
        return super().predict(_as_dict(x), *more, **options)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Return the loss of `compile`, for the scores only: hidden states and attentions have no labels."""
        return super().compute_loss(x, y, self._scored(y_pred, y), sample_weight, training)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """Return the metrics of `compile`, for the scores only."""
        return super().compute_metrics(x, y, self._scored(y_pred, y), sample_weight)

    def _check_labels(self, x: Any, y: Any) -> None:
        is_dataset = not (isinstance(x, Mapping | list | tuple) or hasattr(x, "shape"))
        if y is None and not is_dataset and getattr(self, "loss", None) is not None:
            raise DataError("there are no labels. Pass them as y: model.fit(inputs, labels).")

    def _scored(self, output: Any, labels: Any) -> Any:
        """Return the scores: one tensor, or several in the structure of the labels."""
        if not self.scores:
            return output
        if len(self.scores) == 1:
            return output[0]
        by_name = dict(zip(self.scores, output, strict=False))  # the first entries of the output are scores
        return by_name if isinstance(labels, dict) else list(by_name.values())

    def prepare_tf_dataset(
        self,
        dataset: Any,
        batch_size: int = 8,
        shuffle: bool = True,
        *,
        tokenizer: Any = None,
        collate_fn: Callable[[list[dict[str, Any]]], Any] | None = None,
        drop_remainder: bool | None = None,
    ) -> Any:
        """Return batches of a tokenized data set for `fit`, `evaluate` and `predict`.

        Args:
            dataset: A `datasets.Dataset` or a list of dicts. Columns that are neither inputs nor labels are
                ignored.
            batch_size: Number of rows in a batch.
            shuffle: Whether to shuffle the rows in each epoch.
            tokenizer: The tokenizer whose `pad` pads the rows of a batch. Without it, all rows must have
                equal length.
            collate_fn: Function from a list of rows to a batch, instead of the tokenizer.
            drop_remainder: Whether to drop a last batch that is not full; default as `shuffle`.

        Returns:
            A `tf.data.Dataset` of inputs, or of (inputs, labels) if the data set has labels.

        Raises:
            MissingExtraError: TensorFlow is not installed.
            DataError: All rows would be dropped, or rows have different numbers of choices.
            ValueError: Without a tokenizer, rows have different lengths.
        """
        return batches_of(
            dataset,
            labels=dict(zip(self.label_names, self.scores, strict=True)) if self.scores else {},
            batch_size=batch_size,
            shuffle=shuffle,
            collate=collate_fn or partial(collate, tokenizer),
            drop_remainder=shuffle if drop_remainder is None else drop_remainder,
        )

    # --- facts ----------------------------------------------------------------------------------

    def get_input_embeddings(self) -> keras.layers.Embedding:
        """Return the word embeddings (V, E)."""
        return self.albert.embeddings.word_embeddings

    def get_output_embeddings(self) -> keras.layers.Layer | None:
        """Return the decoder that maps E to the vocabulary V, or None if the model has none."""
        return getattr(getattr(self, "predictions", None), "decoder", None)


def _as_dict(inputs: Any) -> Any:
    """Return a mapping as a dict, because Keras does not accept other mappings."""
    return dict(inputs) if isinstance(inputs, Mapping) else inputs


class LayerNetwork:
    """The operations of `heads.Network`, computed by the layers of a model."""

    def __init__(self, model: TFAlbertPreTrainedModel, training: bool) -> None:
        self.config = model.config
        self._model: Any = model
        self._training = training

    def linear(self, values: Tensor, name: str) -> Tensor:
        layer = self._model
        for part in name.split("."):
            layer = getattr(layer, part)
        if name == "classifier":
            values = self._model.dropout(values, training=self._training)
        return layer(values)

    layer_norm = activate = linear

    def pool(self, states: Tensor) -> Tensor:
        return self._model.albert.pool(states)

    def multiply_by_words(self, values: Tensor, bias: str) -> Tensor:  # noqa: ARG002
        return self._model.get_output_embeddings()(values)


# --- inputs -----------------------------------------------------------------------------------


def name_inputs(first: Any, more: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs by name, without those that are None.

    `first` is a tensor of ids, or all inputs as a list or tuple in the documented order or as a mapping.
    """
    positional = [*(first if isinstance(first, list | tuple) else [first]), *more]
    given: list[tuple[str, Any]] = [*zip(NAMES, positional, strict=False), *named.items()]
    if isinstance(first, Mapping):
        given = [*first.items(), *given[1:]]
    if len(positional) > len(NAMES):
        raise ValueError(f"got {len(positional)} inputs. Expected at most {len(NAMES)}: {', '.join(NAMES)}.")
    inputs: dict[str, Any] = {}
    for name, value in given:
        if name not in NAMES:
            raise ValueError(f"there is no input {name!r}. {suggestion(str(name), NAMES)}")
        if value is not None and name in inputs:
            raise ValueError(f"{name} is passed twice. Pass it once.")
        if value is not None:
            inputs[name] = value
    return inputs


def _as_tensor(name: str, value: Any, config: AlbertConfig) -> Tensor:
    if not (ops.is_tensor(value) or isinstance(value, keras.KerasTensor)):
        value = np.asarray(value)
    values = _known_values(value)
    kind = keras.backend.standardize_dtype(value.dtype)
    if name in TABLES:
        if "int" not in kind:
            raise ValueError(
                f"{name} must be whole numbers, got {kind} (an Input of Keras needs dtype='int32')"
            )
        if values is not None and values.size:
            check_range(name, int(values.min()), int(values.max()), config)
        # A cast would be a layer of a functional model, and `.h5` files cannot contain this layer.
        return value if isinstance(value, keras.KerasTensor) else ops.cast(value, "int32")
    if name == "attention_mask" and values is not None:
        strange = values[(values < 0) | ((values != 0) != values) & ("float" in kind)]
        if strange.size:
            # Read as 0 and 1, a mask that is meant to be added to scores would show padding and hide text.
            raise ValueError(
                f"attention_mask contains {strange[0]}. Expected 1 for keys to attend to, 0 for others."
            )
    return ops.convert_to_tensor(value) if isinstance(value, np.ndarray) else value


def _known_values(value: Any) -> np.ndarray | None:
    """Return the values of a tensor as an array, or None while a function is compiled."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, keras.KerasTensor):
        return None
    try:
        return ops.convert_to_numpy(value)
    except (TypeError, NotImplementedError, RuntimeError):  # raised while a function is traced
        return None


# --- variables --------------------------------------------------------------------------------
# Their names are those of PyTorch's modules. Keras stores a matrix as inputs x outputs, PyTorch as outputs x
# inputs.


def fill(
    model: keras.Model, tensors: Mapping[str, np.ndarray], *, ignore_mismatched_sizes: bool = False
) -> LoadReport:
    """Copy tensors of a file to a model created with `uninitialized`; initialize missing matrices."""
    variables = variables_by_name(model)
    sizes = {name: variable.shape[:: _step(variable)] for name, variable in variables.items()}
    sizes |= {alias: sizes[name] for alias, name in _aliases(model.config, variables).items()}
    matched, report = match(
        tensors, sizes, tied=shared_names(model.config), ignore_mismatched_sizes=ignore_mismatched_sizes
    )
    for name, variable in variables.items():
        if name in matched:
            values = matched[name]
            # Not every backend reads half precision.
            values = values.astype(np.promote_types(values.dtype, np.float32), copy=False)
            variable.assign(values.T if _step(variable) < 0 else values)
        elif len(variable.shape) > 1:
            variable.assign(initializer(model.config)(variable.shape, dtype=variable.dtype))
    return report


def tensors_of(model: keras.Model) -> dict[str, np.ndarray]:
    """Return the tensors of PyTorch's `state_dict` for this model, including both names of shared tensors."""
    variables = variables_by_name(model)
    tensors: dict[str, np.ndarray] = {}
    for name, variable in variables.items():
        values: Any = ops.convert_to_numpy(variable.value)
        # Copy the values: training may continue while the file is written.
        tensors[name] = np.array(values.T if _step(variable) < 0 else values, order="C")
    return tensors | {alias: tensors[name] for alias, name in _aliases(model.config, variables).items()}


def variables_by_name(model: keras.Model) -> dict[str, Any]:
    """Return every variable by its name in PyTorch. In an encoder without a head, names have no prefix.

    The path of a variable is this name with slashes, after the name of the model.
    """
    first = model.weights[0].path
    outer = first[: first.rindex("albert/embeddings/word_embeddings/")]
    bare = not model.scores
    names: dict[str, Any] = {}
    for variable in model.weights:
        path = re.sub(r"(?<=s)_(?=\d+/)", "/", variable.path.removeprefix(outer))  # albert_layers_0/
        # `canonical` reads names of older Keras files: one level for the model, then the layers.
        name = canonical(f"model/{path}:0")
        names[name.removeprefix(BASE_PREFIX) if bare else name] = variable
    return names


def _aliases(config: AlbertConfig, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the second name of each shared tensor of this model with its main name."""
    if "predictions.decoder.bias" not in variables:
        return {}  # only models with a decoder share tensors
    pairs = [pair for both in shared_names(config).items() for pair in (both, both[::-1])]
    return {alias: name for alias, name in pairs if name in variables and alias not in variables}


def _step(variable: Any) -> int:
    """Return -1 for a matrix, whose dimensions are swapped in PyTorch, otherwise 1."""
    return -1 if variable.name == "kernel" else 1

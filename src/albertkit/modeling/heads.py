"""The models with a head: for pretraining, and for fine-tuning.

Lan et al. 2019 (arXiv:1909.11942), section 3.1. The masked language modeling head maps H to E, then to the
vocabulary, with the word embeddings as its matrix. In a small model, this last projection is most of the
work, and only masked tokens need it: `masked_positions` selects them.

Shapes: B batch, T tokens, E embedding, H hidden, N heads, L executed layers, V vocabulary, P masked
positions, K labels, C choices.
"""

import warnings
from collections import OrderedDict
from typing import Any, ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertkit.checkpoints.names import TIED
from albertkit.config import AlbertConfig
from albertkit.errors import DataError
from albertkit.model_inputs import NAMES, check_shapes
from albertkit.modeling.layers import AlbertDecoder, make_activation
from albertkit.modeling.losses import classification_loss, loss_of_step
from albertkit.modeling.model import AlbertModel, HeadOptions
from albertkit.modeling.outputs import (
    AlbertForPreTrainingOutput,
    BaseModelOutputWithPooling,
    LogitsOutput,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from albertkit.modeling.pretrained import AlbertPreTrainedModel

Inputs = tuple[Tensor | None, ...]
"""The inputs of a model in the order of `NAMES`."""

# --- pretraining -----------------------------------------------------------------------------------


class AlbertMLMHead(nn.Module):
    """Maps hidden states to logits over the vocabulary: (..., H) -> (..., V)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.LayerNorm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.decoder: AlbertDecoder | nn.Linear = AlbertDecoder(config.embedding_size, config.vocab_size)
        self.activation = make_activation(config.hidden_act)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(self.LayerNorm(self.activation(self.dense(hidden_states))))


class MaskedWordOptions(HeadOptions, total=False):
    """Keyword arguments of the two models with a masked language modeling head."""

    masked_positions: Tensor | None
    # Not a parameter of `forward`, because `transformers.Trainer` expects every parameter with "label" in its
    # name in every batch.
    masked_lm_labels: Tensor | None


class MaskedWordModel(AlbertPreTrainedModel):
    """Base class of the two models with a masked language modeling head."""

    predictions: AlbertMLMHead
    albert: AlbertModel
    # `transformers.Trainer` does not expect these names in a saved model.
    _keys_to_ignore_on_save: ClassVar[list[str] | None] = list(TIED)
    _tied_weights_keys: ClassVar[dict[str, str] | None] = dict(TIED)

    def score_words(
        self, inputs: Inputs, labels: Tensor | None, options: MaskedWordOptions
    ) -> tuple[BaseModelOutputWithPooling, Tensor, Tensor | None]:
        """Return the encoder's output, the logits of words, and the labels under their current name."""
        options = options.copy()
        older_labels = options.pop("masked_lm_labels", None)
        if older_labels is not None:
            warnings.warn("masked_lm_labels is deprecated. Use labels.", FutureWarning, stacklevel=5)
            if labels is not None:
                raise ValueError("labels and masked_lm_labels are the same argument. Pass only labels.")
            labels = older_labels
        masked_positions = options.pop("masked_positions", None)
        options.pop("num_items_in_batch", None)
        options["return_dict"] = True
        tokens = inputs[0] if inputs[0] is not None else inputs[-1]
        if masked_positions is None or tokens is None:  # `albert` raises an error for missing inputs
            encoded = self.albert(*inputs, **options)
            return encoded, self.predictions(encoded.last_hidden_state), labels
        batch, length = tokens.shape[:2]
        positions, index = query_positions(masked_positions, batch=batch, length=length)
        encoded = self.albert(*inputs, query_positions=positions.to(tokens.device), **options)
        states = encoded.last_hidden_state.flatten(0, 1)  # (B, R, H) -> (B*R, H)
        return encoded, self.predictions(states.index_select(0, index.to(states.device))), labels

    def get_output_embeddings(self) -> AlbertDecoder | nn.Linear:
        """Return the decoder that maps E to the vocabulary V."""
        return self.predictions.decoder

    def set_output_embeddings(self, value: AlbertDecoder | nn.Linear) -> None:
        """Replace the decoder and its bias."""
        self.predictions.decoder, self.predictions.bias = value, value.bias

    def tie_weights(self) -> None:
        """Tie the decoder's matrix to the word embeddings, and its bias to `predictions.bias`."""
        super().tie_weights()
        self.predictions.decoder.bias = self.predictions.bias

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the tensors as `nn.Module` does, with copies for the second names of tied tensors.

        A safetensors file cannot contain a tensor twice, and libraries that write the state dict to such a
        file reject tensors that share memory.
        """
        tensors = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", "")
        for second, first in TIED.items():
            tensor, other = tensors.get(prefix + second), tensors.get(prefix + first)
            if tensor is None or other is None or isinstance(tensor, nn.Parameter) or tensor.is_meta:
                continue
            if tensor.data_ptr() == other.data_ptr():
                tensors[prefix + second] = tensor.clone()
        return tensors


class AlbertForPreTraining(MaskedWordModel):
    """ALBERT with both pretraining heads: masked words (`predictions`), sentence order (`sop_classifier`)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        config = self.config
        self.albert = AlbertModel(config)
        self.predictions = AlbertMLMHead(config)
        # Logits of "in order" (0) and "swapped" (1); no dropout, as in the original.
        classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.sop_classifier = nn.Sequential(OrderedDict(classifier=classifier))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        head_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        sentence_order_label: Tensor | None = None,
        **options: Unpack[MaskedWordOptions],
    ) -> AlbertForPreTrainingOutput:
        """Compute the logits of masked words, (B, T, V), and of sentence order, (B, 2).

        `labels`, `masked_positions` and `masked_lm_labels` are those of `AlbertForMaskedLM.forward`.
        `sentence_order_label` (B,) is 0 for texts in order and 1 for swapped texts. The loss is the sum of
        the losses of the labels that are passed.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        encoded, prediction_logits, labels = self.score_words(inputs, labels, options)
        sop_logits = self.sop_classifier(encoded.pooler_output)
        losses = []
        if labels is not None:
            losses.append(classification_loss(prediction_logits, labels))
        if sentence_order_label is not None:
            losses.append(classification_loss(sop_logits, sentence_order_label))
        loss = torch.stack(losses).sum() if losses else None
        if loss is not None and labels is not None:  # Trainer's number counts only `labels`
            loss = loss_of_step(loss, labels, options.get("num_items_in_batch"))
        output = AlbertForPreTrainingOutput(
            loss, prediction_logits, sop_logits, encoded.hidden_states, encoded.attentions
        )
        return self.finish(output, options.get("return_dict"))


class AlbertForMaskedLM(MaskedWordModel):
    """ALBERT with the masked language modeling head (`predictions`)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        config = self.config
        self.albert = AlbertModel(config, add_pooling_layer=False)
        self.predictions = AlbertMLMHead(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        head_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Unpack[MaskedWordOptions],
    ) -> MaskedLMOutput:
        """Compute the logits over the vocabulary, (B, T, V).

        `labels` are (B, T) ids of the original tokens, -100 for positions that are not predicted.
        `masked_positions` (P,) are indices into the flattened B * T tokens: only these positions get logits
        (P, V), with labels (P,), and the last layer computes only them and [CLS]. Keep them on the CPU if you
        can. `masked_lm_labels` is the older name of `labels`. For the other arguments see
        `AlbertModel.forward`, and `AlbertForTokenClassification.forward` for `num_items_in_batch`.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        encoded, logits, labels = self.score_words(inputs, labels, options)
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels)
            loss = loss_of_step(loss, labels, options.get("num_items_in_batch"))
        output = MaskedLMOutput(loss, logits, encoded.hidden_states, encoded.attentions)
        return self.finish(output, options.get("return_dict"))


READ_MULTIPLE = 4  # R is rounded up to it: CPU libraries keep code and buffers for every shape they compute


def query_positions(flat: Tensor, *, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Group positions (P,) in the flattened B * T tokens by row, with [CLS] first in each row.

    Shorter rows are filled up with [CLS]. Keep `flat` on the CPU if you can: R depends on its values, which
    would have to be copied from the GPU.

    Returns:
        The positions (B, R), and for each of the P positions its index in the flattened B * R positions.
    """
    if flat.dim() != 1 or flat.dtype not in (torch.int32, torch.int64):
        given = f"{flat.dtype} {tuple(flat.shape)}"
        raise DataError(f"masked_positions must be whole numbers of shape (P,), got {given}")
    if len(flat) and not torch.compiler.is_compiling():
        first, last = torch.stack(torch.aminmax(flat)).tolist()
        if not 0 <= first <= last < batch * length:
            raise DataError(
                f"masked_positions has values from {first} to {last}. Expected 0 to {batch * length - 1}, "
                f"indices into the {batch} * {length} tokens."
            )
    flat = flat.long()
    row, column = flat // length, flat % length
    others = column != 0  # [CLS] is always in the first column
    counts = torch.bincount(row[others], minlength=batch)  # (B,)
    most = 1 + (int(counts.max()) if len(counts) else 0)
    reads = most + -most % READ_MULTIPLE
    order = row[others].argsort(stable=True)
    starts = counts.cumsum(0) - counts
    slots = torch.zeros_like(flat)  # (P,)
    ranks = torch.arange(len(order), device=flat.device) - starts[row[others][order]] + 1
    slots[others.nonzero().flatten()[order]] = ranks
    positions = torch.zeros(batch, reads, dtype=torch.long, device=flat.device)
    positions[row, slots] = column
    return positions, row * reads + slots


# --- fine-tuning -----------------------------------------------------------------------------------


class ClassifierModel(AlbertPreTrainedModel):
    """Base class of the models with dropout and a linear map, `classifier`, on the output of the encoder."""

    output_class: ClassVar[type[LogitsOutput]]
    pools: ClassVar[bool] = True
    """Whether the classifier reads the pooled output instead of all tokens."""
    has_choices: ClassVar[bool] = False
    """Whether the inputs are (B, C, T), with one score for each choice."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        config = self.config
        self.albert = AlbertModel(config, add_pooling_layer=self.pools)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, 1 if self.has_choices else config.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        head_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Unpack[HeadOptions],
    ) -> LogitsOutput:
        """Compute the logits and, with `labels`, the loss.

        The class describes the logits and the labels, and `AlbertModel.forward` the other arguments.
        `num_items_in_batch` is the number of labels in a step that accumulates several batches: the loss of
        the batch is then divided by it. `transformers.Trainer` passes it.

        Raises:
            ValueError: The labels do not match the logits.
        """
        num_items_in_batch = options.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        rows = inputs
        if self.has_choices:
            check_shapes(inputs, self.config, choices=True)
            # (B, C, ...) -> (B*C, ...); values for all rows, (T,), and the head mask stay as they are
            rows = [
                values if values is None or values.dim() < 2 or name == "head_mask" else values.flatten(0, 1)
                for name, values in zip(NAMES, inputs, strict=True)
            ]
        tokens = input_ids if input_ids is not None else inputs_embeds
        read = None
        if self.pools and not _has_hooks(self.albert):  # hooks must see the hidden states of all tokens
            device = None if tokens is None else tokens.device
            read = torch.zeros(1, 1, dtype=torch.long, device=device)  # only [CLS] is read
        encoded = self.albert(*rows, query_positions=read, **options | {"return_dict": True})
        states = encoded.pooler_output if self.pools else encoded.last_hidden_state
        logits = self.classifier(self.dropout(states))
        if self.has_choices and tokens is not None:
            logits = logits.view(-1, tokens.shape[1])  # (B*C, 1) -> (B, C)
        loss = None
        if labels is not None:
            loss = loss_of_step(self._loss(logits, labels), labels, num_items_in_batch)
        output = self.output_class(loss, logits, encoded.hidden_states, encoded.attentions)
        return self.finish(output, options.get("return_dict"))

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return classification_loss(logits, labels)


class AlbertForSequenceClassification(ClassifierModel):
    """ALBERT with one score per label for the whole sequence, computed from the pooled output.

    The logits are (B, K). `labels` are (B,) class ids, (B, K) zeros and ones for several labels, or (B,) or
    (B, K) numbers for a regression; see `AlbertConfig.problem_type`.
    """

    output_class = SequenceClassifierOutput

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch for the kind of problem, which the config then records."""
        config = self.config
        if config.problem_type is not None:
            problem = config.problem_type
        elif self.num_labels == 1:
            problem = "regression"
        elif labels.is_floating_point():
            problem = "multi_label_classification"
        else:
            problem = "single_label_classification"
        expected = len(logits) if problem == "single_label_classification" else logits.numel()
        if labels.numel() != expected:
            raise ValueError(
                f"{problem} with logits of shape {tuple(logits.shape)} needs {expected} labels, "
                f"got shape {tuple(labels.shape)}"
            )
        config.problem_type = problem
        if problem == "single_label_classification":
            return classification_loss(logits, labels)
        if problem == "regression":
            return F.mse_loss(logits.float().reshape(-1), labels.float().reshape(-1))
        return F.binary_cross_entropy_with_logits(logits.float(), labels.float())


class AlbertForTokenClassification(ClassifierModel):
    """ALBERT with one score per label for each token.

    The logits are (B, T, K). `labels` are (B, T) class ids, -100 for tokens without a label.
    """

    output_class = TokenClassifierOutput
    pools = False


class AlbertForMultipleChoice(ClassifierModel):
    """ALBERT with one score per choice. Each choice is a separate row.

    The inputs have a dimension of choices after the batch: `input_ids` (B, C, T). `token_type_ids` and
    `position_ids` may also be (T,). The logits are (B, C). `labels` are (B,) indices of the correct choices.
    """

    output_class = MultipleChoiceModelOutput
    has_choices = True


class AlbertForQuestionAnswering(AlbertPreTrainedModel):
    """ALBERT with a start score and an end score for each token."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        config = self.config
        self.albert = AlbertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        head_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **options: Unpack[HeadOptions],
    ) -> QuestionAnsweringModelOutput:
        """Compute the start and end logits of each token, each (B, T).

        `start_positions` and `end_positions` are (B,) or (B, 1) indices of the answer's first and last token.
        An index of T or more means that the answer is outside this window; the loss, the mean of both losses,
        ignores it. For the other arguments see `AlbertModel.forward`.

        Raises:
            ValueError: Only one of `start_positions` and `end_positions` is passed.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        encoded = self.albert(*inputs, **options | {"return_dict": True})
        logits = self.qa_outputs(encoded.last_hidden_state)  # (B, T, 2)
        start_logits, end_logits = (each.contiguous() for each in logits.unbind(-1))
        loss = None
        if (start_positions is None) != (end_positions is None):
            raise ValueError(
                "start_positions and end_positions are needed together. Received only one of them."
            )
        if start_positions is not None and end_positions is not None:
            loss = (_span_loss(start_logits, start_positions) + _span_loss(end_logits, end_positions)) / 2
        output = QuestionAnsweringModelOutput(
            loss, start_logits, end_logits, encoded.hidden_states, encoded.attentions
        )
        return self.finish(output, options.get("return_dict"))


def _span_loss(logits: Tensor, positions: Tensor) -> Tensor:
    length = logits.shape[1]
    if positions.is_floating_point():
        raise DataError(f"positions of answers must be whole numbers, got {positions.dtype}")
    return classification_loss(logits, positions.long().clamp(0, length), ignored=length)


def _has_hooks(encoder: AlbertModel) -> bool:
    return any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
        for part in encoder.modules()
    )

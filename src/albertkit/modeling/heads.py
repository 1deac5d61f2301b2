"""The models with a head: for pretraining, and for fine-tuning.

Lan et al. 2019 (arXiv:1909.11942), section 3.1. The masked language modeling head maps H to E, then to the
vocabulary, with the word embeddings as its matrix. In a small model, this last projection is most of the
work, and only masked tokens need it: `masked_positions` selects them.

Shapes: B batch, T tokens, E embedding, H hidden, N heads, L executed layers, V vocabulary, P masked
positions, K labels, C choices.
"""

import warnings
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
from albertkit.modeling.model import AlbertModel, HeadOptions, LabelOptions
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
        self.tie_bias()

    def tie_bias(self) -> None:
        """Use one bias under both names that checkpoints use."""
        self.decoder.bias = self.bias

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(self.LayerNorm(self.activation(self.dense(hidden_states))))


class AlbertSOPHead(nn.Module):
    """Maps (B, H) to logits (B, K) of "in order" (0) and "swapped" (1); no dropout, as in the original."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pooled: Tensor) -> Tensor:
        return self.classifier(pooled)


class MaskedWordOptions(LabelOptions, total=False):
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

    def encode(
        self, *inputs: Tensor | None, **options: Unpack[MaskedWordOptions]
    ) -> BaseModelOutputWithPooling:
        """Return the encoder's output, with `last_hidden_state` (P, H) if there are masked positions."""
        masked_positions, options["return_dict"] = options.pop("masked_positions", None), True
        tokens = inputs[0] if inputs[0] is not None else inputs[-1]
        if masked_positions is None or tokens is None:  # `albert` raises an error for missing inputs
            return self.albert(*inputs, **options)
        batch, length = tokens.shape[:2]
        positions, index = query_positions(masked_positions, batch=batch, length=length)
        encoded = self.albert(*inputs, query_positions=positions.to(tokens.device), **options)
        states = encoded.last_hidden_state.flatten(0, 1)  # (B, R, H) -> (B*R, H)
        encoded.last_hidden_state = states.index_select(0, index.to(states.device))
        return encoded

    def get_output_embeddings(self) -> AlbertDecoder | nn.Linear:
        """Return the decoder that maps E to the vocabulary V."""
        return self.predictions.decoder

    def set_output_embeddings(self, value: AlbertDecoder | nn.Linear) -> None:
        """Replace the decoder and its bias."""
        self.predictions.decoder = value
        self.predictions.bias = value.bias

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the tensors as `nn.Module` does, with copies for the second names of tied tensors.

        A safetensors file cannot contain a tensor twice, and libraries that write the state dict to such a
        file reject tensors that share memory.
        """
        tensors = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", "")
        for second, first in TIED.items():
            one, other = tensors.get(prefix + second), tensors.get(prefix + first)
            if one is None or other is None or isinstance(one, nn.Parameter) or one.is_meta:
                continue
            if one.data_ptr() == other.data_ptr():
                tensors[prefix + second] = one.clone()
        return tensors

    def tie_weights(self) -> None:
        """Tie the decoder's matrix to the word embeddings, and its bias to `predictions.bias`."""
        super().tie_weights()
        self.predictions.tie_bias()


class AlbertForPreTraining(MaskedWordModel):
    """ALBERT with both pretraining heads: masked words (`predictions`), sentence order (`sop_classifier`)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        config = self.config
        self.albert = AlbertModel(config)
        self.predictions = AlbertMLMHead(config)
        self.sop_classifier = AlbertSOPHead(config)
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

        `labels` are (B, T) ids of the original tokens, -100 for positions that are not predicted.
        `masked_positions` (P,) are indices into the flattened B * T tokens: only these positions get logits
        (P, V), with labels (P,), and the last layer computes only them and [CLS]. Keep them on the CPU if you
        can. `masked_lm_labels` is the older name of `labels`. For the other arguments see
        `AlbertModel.forward`, and `AlbertForTokenClassification.forward` for `num_items_in_batch`.

        `sentence_order_label` (B,) is 0 for texts in order and 1 for swapped texts. The loss is the sum of
        the losses of the labels that are passed.
        """
        labels = _current_labels(labels, options.pop("masked_lm_labels", None))
        num_items_in_batch = options.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        encoded = self.encode(*inputs, **options)
        prediction_logits = self.predictions(encoded.last_hidden_state)
        sop_logits = self.sop_classifier(encoded.pooler_output)
        losses = []
        if labels is not None:
            losses.append(classification_loss(prediction_logits, labels))
        if sentence_order_label is not None:
            losses.append(classification_loss(sop_logits, sentence_order_label))
        loss = torch.stack(losses).sum() if losses else None
        if loss is not None and labels is not None:  # Trainer's number counts only `labels`
            loss = loss_of_step(loss, labels, num_items_in_batch)
        output = AlbertForPreTrainingOutput(
            loss=loss,
            prediction_logits=prediction_logits,
            sop_logits=sop_logits,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
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
        labels = _current_labels(labels, options.pop("masked_lm_labels", None))
        num_items_in_batch = options.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        encoded = self.encode(*inputs, **options)
        logits = self.predictions(encoded.last_hidden_state)
        loss = None
        if labels is not None:
            loss = loss_of_step(classification_loss(logits, labels), labels, num_items_in_batch)
        output = MaskedLMOutput(loss, logits, encoded.hidden_states, encoded.attentions)
        return self.finish(output, options.get("return_dict"))


def _current_labels(labels: Tensor | None, masked_lm_labels: Tensor | None) -> Tensor | None:
    if masked_lm_labels is not None:
        warnings.warn("masked_lm_labels is deprecated. Use labels.", FutureWarning, stacklevel=5)
        if labels is not None:
            raise ValueError("labels and masked_lm_labels are the same argument. Pass only labels.")
    return labels if masked_lm_labels is None else masked_lm_labels


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

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        config = self.config
        self.albert = AlbertModel(config, add_pooling_layer=self.pools)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, self._num_scores())
        self.post_init()

    def _num_scores(self) -> int:
        return self.config.num_labels

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        head_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Unpack[LabelOptions],
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
        encoded = self._encode(*inputs, **options | {"return_dict": True})
        states = encoded.pooler_output if self.pools else encoded.last_hidden_state
        logits = self._arrange(self.classifier(self.dropout(states)), inputs)
        loss = None
        if labels is not None:
            loss = loss_of_step(self._loss(logits, labels), labels, num_items_in_batch)
        output = self.output_class(loss, logits, encoded.hidden_states, encoded.attentions)
        return self.finish(output, options.get("return_dict"))

    def _encode(self, *inputs: Tensor | None, **options: Any) -> BaseModelOutputWithPooling:
        read = _read_positions(self.albert, inputs[0], inputs[-1]) if self.pools else None
        return self.albert(*inputs, query_positions=read, **options)

    def _arrange(self, scores: Tensor, inputs: tuple[Tensor | None, ...]) -> Tensor:  # noqa: ARG002
        return scores

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return classification_loss(logits, labels)


class AlbertForSequenceClassification(ClassifierModel):
    """ALBERT with one score per label for the whole sequence, computed from the pooled output.

    The logits are (B, K). `labels` are (B,) class ids, (B, K) zeros and ones for several labels, or (B,) or
    (B, K) numbers for a regression; see `AlbertConfig.problem_type`.
    """

    output_class = SequenceClassifierOutput

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        problem = self.config.problem_type or self._problem_of(labels)
        expected = len(logits) if problem == "single_label_classification" else logits.numel()
        if labels.numel() != expected:
            raise ValueError(
                f"{problem} with logits of shape {tuple(logits.shape)} needs {expected} labels, "
                f"got shape {tuple(labels.shape)}"
            )
        if self.config.problem_type is None:
            self.config.problem_type = problem  # so that a saved model has it
        if problem == "single_label_classification":
            return classification_loss(logits, labels)
        if problem == "regression":
            return F.mse_loss(logits.float().reshape(-1), labels.float().reshape(-1))
        return F.binary_cross_entropy_with_logits(logits.float(), labels.float())

    def _problem_of(self, labels: Tensor) -> str:
        if self.num_labels == 1:
            return "regression"
        return "multi_label_classification" if labels.is_floating_point() else "single_label_classification"


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

    def _num_scores(self) -> int:
        return 1

    def _encode(self, *inputs: Tensor | None, **options: Any) -> BaseModelOutputWithPooling:
        check_shapes(inputs, self.config, choices=True)
        named = dict(zip(NAMES, inputs, strict=True))
        head_mask = named.pop("head_mask")
        # (B, C, ...) -> (B*C, ...); values for all rows, (T,), stay as they are
        rows = [
            values if values is None or values.dim() < 2 else values.flatten(0, 1)
            for values in named.values()
        ]
        return super()._encode(*rows[:-1], head_mask, rows[-1], **options)

    def _arrange(self, scores: Tensor, inputs: tuple[Tensor | None, ...]) -> Tensor:
        given = inputs[0] if inputs[0] is not None else inputs[-1]
        assert given is not None
        return scores.view(-1, given.shape[1])  # (B*C, 1) -> (B, C)


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
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return self.finish(output, options.get("return_dict"))


def _span_loss(logits: Tensor, positions: Tensor) -> Tensor:
    length = logits.shape[1]
    if positions.is_floating_point():
        raise DataError(f"positions of answers must be whole numbers, got {positions.dtype}")
    return classification_loss(logits, positions.long().clamp(0, length), ignored=length)


def _read_positions(encoder: AlbertModel, *inputs: Tensor | None) -> Tensor | None:
    """Return the position of [CLS], (1, 1), the only one that the head reads, or None for all positions.

    Hooks in the encoder must see the hidden states of all tokens.
    """
    has_hooks = any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
        for part in encoder.modules()
    )
    if has_hooks:
        return None
    device = next((tensor.device for tensor in inputs if tensor is not None), None)
    return torch.zeros(1, 1, dtype=torch.long, device=device)

"""The fine-tuning heads of ALBERT: sequence and token classification, question answering, multiple choice.

Shapes: B batch, T tokens, E embedding, H hidden, N heads, K labels, C choices, L executed layers.
"""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertkit.config import AlbertConfig
from albertkit.modeling.arguments import CLASSES, check_tensors, named_inputs
from albertkit.modeling.losses import classification_loss, loss_of_step
from albertkit.modeling.model import AlbertModel, HeadOptions, LabelOptions
from albertkit.modeling.outputs import (
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from albertkit.modeling.pretrained import AlbertPreTrainedModel


class AlbertForSequenceClassification(AlbertPreTrainedModel):
    """ALBERT with one score per label for the whole sequence, computed from the pooled output."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        config = self.config
        self.albert = AlbertModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
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
        **options: Unpack[LabelOptions],
    ) -> SequenceClassifierOutput:
        """Compute the logits (B, K) of each sequence.

        `labels` are (B,) class ids, (B, K) zeros and ones for several labels, or (B,) or (B, K) numbers for a
        regression; see `AlbertConfig.problem_type`. For the other arguments see `AlbertModel.forward`, and
        `losses.loss_of_step` for `num_items_in_batch`.

        Raises:
            ValueError: The shape of the labels does not match the problem type.
        """
        num_items_in_batch = options.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        read = _read_positions(self.albert, input_ids, inputs_embeds)
        encoded = self.albert(*inputs, query_positions=read, **options | {"return_dict": True})
        logits = self.classifier(self.dropout(encoded.pooler_output))
        loss = None
        if labels is not None:
            loss = loss_of_step(self._loss(logits, labels), labels, num_items_in_batch)
        output = SequenceClassifierOutput(loss, logits, encoded.hidden_states, encoded.attentions)
        return self.finish(output, options.get("return_dict"))

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        check_tensors({"labels": labels})
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


class AlbertForTokenClassification(AlbertPreTrainedModel):
    """ALBERT with one score per label for each token."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        config = self.config
        self.albert = AlbertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
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
        **options: Unpack[LabelOptions],
    ) -> TokenClassifierOutput:
        """Compute the logits (B, T, K) of each token.

        `labels` are (B, T) class ids, -100 for tokens without a label. For the other arguments see
        `AlbertModel.forward`, and `losses.loss_of_step` for `num_items_in_batch`.
        """
        num_items_in_batch = options.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        encoded = self.albert(*inputs, **options | {"return_dict": True})
        logits = self.classifier(self.dropout(encoded.last_hidden_state))
        loss = None
        if labels is not None:
            loss = loss_of_step(classification_loss(logits, labels), labels, num_items_in_batch)
        output = TokenClassifierOutput(loss, logits, encoded.hidden_states, encoded.attentions)
        return self.finish(output, options.get("return_dict"))


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
            start_loss = _span_loss(start_logits, start_positions, name="start_positions")
            end_loss = _span_loss(end_logits, end_positions, name="end_positions")
            loss = (start_loss + end_loss) / 2
        output = QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return self.finish(output, options.get("return_dict"))


class AlbertForMultipleChoice(AlbertPreTrainedModel):
    """ALBERT with one score per choice. Each choice is a separate row."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        config = self.config
        self.albert = AlbertModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, 1)
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
        **options: Unpack[LabelOptions],
    ) -> MultipleChoiceModelOutput:
        """Compute the logits (B, C) of the choices of each question.

        The inputs have a dimension of choices after the batch: `input_ids` (B, C, T). `token_type_ids` and
        `position_ids` may also be (T,). `labels` are (B,) indices of the correct choices. For the other
        arguments see `AlbertModel.forward`, and `losses.loss_of_step` for `num_items_in_batch`.

        Raises:
            ValueError: Both or neither of `input_ids` and `inputs_embeds` are passed, or they have no
                dimension for choices.
        """
        num_items_in_batch = options.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        named = named_inputs(*inputs, config=self.config, choices=True)
        encoded = self.albert(
            **{name: _merge_choices(value) for name, value in named.items() if name != "head_mask"},
            head_mask=head_mask,
            query_positions=_read_positions(self.albert, input_ids, inputs_embeds),
            **options | {"return_dict": True},
        )
        scores = self.classifier(self.dropout(encoded.pooler_output))
        given = input_ids if inputs_embeds is None else inputs_embeds
        assert given is not None
        logits = scores.view(-1, given.shape[1])  # (B*C, 1) -> (B, C)
        loss = None
        if labels is not None:
            loss = loss_of_step(classification_loss(logits, labels), labels, num_items_in_batch)
        output = MultipleChoiceModelOutput(loss, logits, encoded.hidden_states, encoded.attentions)
        return self.finish(output, options.get("return_dict"))


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
    device = next((tensor.device for tensor in inputs if isinstance(tensor, Tensor)), None)
    return torch.zeros(1, 1, dtype=torch.long, device=device)


def _span_loss(logits: Tensor, positions: Tensor, *, name: str) -> Tensor:
    check_tensors({name: positions}, dtypes=CLASSES)
    length = logits.shape[1]
    return classification_loss(logits, positions.long().clamp(0, length), ignored=length, name=name)


def _merge_choices(values: Tensor | None) -> Tensor | None:
    """Merge batch and choices: (B, C, ...) -> (B*C, ...). Values for all rows, (T,), stay as they are."""
    return values if values is None or values.dim() < 2 else values.flatten(0, 1)

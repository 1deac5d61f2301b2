"""The heads ALBERT is fine-tuned with: sequence and token classes, answer spans, multiple choice.

Shapes: B batch, T tokens, E embedding, H hidden, N heads, K labels, C choices.
"""

from typing import Unpack

from torch import Tensor, nn

from albertkit.config import AlbertConfig
from albertkit.modeling.losses import classification_loss, multi_label_loss, regression_loss
from albertkit.modeling.model import AlbertModel, OutputOptions
from albertkit.modeling.outputs import (
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.reading import first_token


class AlbertForSequenceClassification(AlbertPreTrainedModel):
    """ALBERT with one score per label for the whole sequence, from the pooled output."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
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
        *,
        return_dict: bool | None = None,
        **options: Unpack[OutputOptions],
    ) -> SequenceClassifierOutput:
        """Score the labels of each sequence. Inputs as in `AlbertModel.forward`.

        Args:
            labels: what `config.problem_type` says: class ids (B,) or (B, 1) for
                "single_label_classification", numbers (B,) or (B, K) for "regression", 0 and 1 (B, K)
                for "multi_label_classification". Where it says nothing it is set, from then on:
                regression for one label, else single label for whole numbers, multi-label for floats.

        Returns:
            `SequenceClassifierOutput` with logits (B, K).

        Raises:
            ValueError: labels of a shape that the problem type does not have.
        """
        encoded = self.albert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            head_mask,
            inputs_embeds,
            return_dict=True,
            read_positions=first_token(self.device),
            **options,
        )
        logits = self.classifier(self.dropout(encoded.pooler_output))
        output = SequenceClassifierOutput(
            loss=None if labels is None else self._loss(logits, labels),
            logits=logits,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return self.finish(output, return_dict)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        problem = self.config.problem_type or self._problem_of(labels)
        expected = len(logits) if problem == "single_label_classification" else logits.numel()
        if labels.numel() != expected:
            raise ValueError(
                f"{problem} with logits of shape {tuple(logits.shape)} needs {expected} labels, "
                f"got shape {tuple(labels.shape)}"
            )
        if self.config.problem_type is None:
            self.config.problem_type = problem  # so that a saved model says what it was trained for
        if problem == "regression":
            return regression_loss(logits, labels)
        if problem == "single_label_classification":
            return classification_loss(logits, labels)
        return multi_label_loss(logits, labels)

    def _problem_of(self, labels: Tensor) -> str:
        if self.config.num_labels == 1:
            return "regression"
        return "multi_label_classification" if labels.is_floating_point() else "single_label_classification"


class AlbertForTokenClassification(AlbertPreTrainedModel):
    """ALBERT with one score per label for every token."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
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
        *,
        return_dict: bool | None = None,
        **options: Unpack[OutputOptions],
    ) -> TokenClassifierOutput:
        """Score the labels of each token. Inputs as in `AlbertModel.forward`.

        Args:
            labels: (B, T) class ids, -100 where a token has none.

        Returns:
            `TokenClassifierOutput` with logits (B, T, K).
        """
        encoded = self.albert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            head_mask,
            inputs_embeds,
            return_dict=True,
            **options,
        )
        logits = self.classifier(self.dropout(encoded.last_hidden_state))
        output = TokenClassifierOutput(
            loss=None if labels is None else classification_loss(logits, labels),
            logits=logits,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return self.finish(output, return_dict)


class AlbertForQuestionAnswering(AlbertPreTrainedModel):
    """ALBERT with a start score and an end score for every token."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
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
        *,
        return_dict: bool | None = None,
        **options: Unpack[OutputOptions],
    ) -> QuestionAnsweringModelOutput:
        """Score every token as the start and as the end of the answer. Inputs as in `AlbertModel.forward`.

        Args:
            start_positions, end_positions: (B,) or (B, 1) token indices, given both or neither; those
                at or beyond T (an answer outside this window) are left out of the loss.

        Returns:
            `QuestionAnsweringModelOutput`; the loss is the mean of the start and the end loss.

        Raises:
            ValueError: one of the two positions without the other.
        """
        encoded = self.albert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            head_mask,
            inputs_embeds,
            return_dict=True,
            **options,
        )
        start_logits, end_logits = self.qa_outputs(encoded.last_hidden_state).unbind(
            -1
        )  # (B, T, 2) -> 2 (B, T)
        loss = None
        if (start_positions is None) != (end_positions is None):
            raise ValueError("start_positions and end_positions go together; got only one of them")
        if start_positions is not None and end_positions is not None:
            length = start_logits.shape[1]
            start_loss = classification_loss(start_logits, start_positions.clamp(0, length), ignored=length)
            end_loss = classification_loss(end_logits, end_positions.clamp(0, length), ignored=length)
            loss = (start_loss + end_loss) / 2
        output = QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return self.finish(output, return_dict)


class AlbertForMultipleChoice(AlbertPreTrainedModel):
    """ALBERT with one score per choice: each choice is a sequence of its own."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
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
        *,
        return_dict: bool | None = None,
        **options: Unpack[OutputOptions],
    ) -> MultipleChoiceModelOutput:
        """Score the choices of each question.

        Args:
            input_ids, attention_mask, token_type_ids, position_ids: (B, C, T).
            head_mask: as in `AlbertModel.forward`.
            inputs_embeds: (B, C, T, E) in place of `input_ids`.
            labels: (B,) index of the right choice.

        Returns:
            `MultipleChoiceModelOutput` with logits (B, C).

        Raises:
            ValueError: both or neither of `input_ids` and `inputs_embeds`, or no dimension of choices.
        """
        given = input_ids if inputs_embeds is None else inputs_embeds
        if given is None or given.dim() != (3 if inputs_embeds is None else 4):
            shape = "nothing" if given is None else tuple(given.shape)
            raise ValueError(f"give input_ids (B, C, T) or inputs_embeds (B, C, T, E), got {shape}")
        choices = given.shape[1]
        encoded = self.albert(
            _merge_choices(input_ids),
            _merge_choices(attention_mask),
            _merge_choices(token_type_ids),
            _merge_choices(position_ids),
            head_mask,
            _merge_choices(inputs_embeds),
            return_dict=True,
            read_positions=first_token(self.device),
            **options,
        )
        scores = self.classifier(self.dropout(encoded.pooler_output))
        logits = scores.view(-1, choices)  # (B*C, 1) -> (B, C)
        output = MultipleChoiceModelOutput(
            loss=None if labels is None else classification_loss(logits, labels),
            logits=logits,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return self.finish(output, return_dict)


def _merge_choices(values: Tensor | None) -> Tensor | None:
    """(B, C, ...) -> (B*C, ...)."""
    return None if values is None else values.flatten(0, 1)

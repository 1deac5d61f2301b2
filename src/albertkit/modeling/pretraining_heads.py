"""The pretraining heads of ALBERT: masked language modeling and sentence order.

Lan et al. 2019 (arXiv:1909.11942), section 3.1. The masked language modeling head maps H to E, then to the
vocabulary, with the word embeddings as its matrix. In a small model, this last projection is most of the
work, and only masked tokens need it: `masked_positions` selects them.

Shapes: B batch, T tokens, E embedding, H hidden, N heads, L executed layers, V vocabulary, P masked
positions, K labels (2).
"""

import warnings
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from albertkit.checkpoints.names import TIED
from albertkit.config import AlbertConfig
from albertkit.modeling.arguments import IDS, check_tensors, query_positions
from albertkit.modeling.layers import AlbertDecoder, make_activation
from albertkit.modeling.losses import classification_loss, loss_of_step
from albertkit.modeling.model import AlbertModel, LabelOptions
from albertkit.modeling.outputs import AlbertForPreTrainingOutput, BaseModelOutputWithPooling, MaskedLMOutput
from albertkit.modeling.pretrained import AlbertPreTrainedModel


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
        """Return the logits (..., V) of hidden states (..., H)."""
        return self.decoder(self.LayerNorm(self.activation(self.dense(hidden_states))))


class AlbertSOPHead(nn.Module):
    """Maps (B, H) to logits (B, K) of "in order" (0) and "swapped" (1); no dropout, as in the original."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pooled: Tensor) -> Tensor:
        """Return the logits (B, K) of pooled vectors (B, H)."""
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
        self,
        input_ids: Tensor | None,
        *inputs: Tensor | None,
        **options: Unpack[MaskedWordOptions],
    ) -> tuple[BaseModelOutputWithPooling, Tensor]:
        """Return the encoder's output, and its states: (P, H) at the masked positions, or all (B, T, H)."""
        masked_positions, options["return_dict"] = options.pop("masked_positions", None), True
        rows = input_ids if input_ids is not None else inputs[-1]
        if masked_positions is None or rows is None:  # `albert` raises an error for missing inputs
            encoded = self.albert(input_ids, *inputs, **options)
            return encoded, encoded.last_hidden_state
        check_tensors({"masked_positions": masked_positions}, dtypes=IDS)
        check_tensors({"inputs_embeds" if input_ids is None else "input_ids": rows})
        batch, length = rows.shape[:2]
        positions, index = query_positions(masked_positions, batch=batch, length=length)
        encoded = self.albert(input_ids, *inputs, query_positions=positions.to(rows.device), **options)
        states = encoded.last_hidden_state.flatten(0, 1)  # (B, R, H) -> (B*R, H)
        return encoded, states.index_select(0, index.to(states.device))

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
        `AlbertModel.forward`, and `losses.loss_of_step` for `num_items_in_batch`.

        `sentence_order_label` (B,) is 0 for texts in order and 1 for swapped texts. The loss is the sum of
        the losses of the labels that are passed.
        """
        labels = _current_labels(labels, options.pop("masked_lm_labels", None))
        num_items_in_batch = options.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        encoded, states = self.encode(*inputs, **options)
        prediction_logits = self.predictions(states)
        sop_logits = self.sop_classifier(encoded.pooler_output)
        losses = []
        if labels is not None:
            losses.append(classification_loss(prediction_logits, labels))
        if sentence_order_label is not None:
            losses.append(classification_loss(sop_logits, sentence_order_label, name="sentence_order_label"))
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
        `AlbertModel.forward`, and `losses.loss_of_step` for `num_items_in_batch`.
        """
        labels = _current_labels(labels, options.pop("masked_lm_labels", None))
        num_items_in_batch = options.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        encoded, states = self.encode(*inputs, **options)
        logits = self.predictions(states)
        loss = None
        if labels is not None:
            loss = loss_of_step(classification_loss(logits, labels), labels, num_items_in_batch)
        output = MaskedLMOutput(loss, logits, encoded.hidden_states, encoded.attentions)
        return self.finish(output, options.get("return_dict"))


def _current_labels(labels: Tensor | None, masked_lm_labels: Tensor | None) -> Tensor | None:
    if masked_lm_labels is None:
        return labels
    warnings.warn("masked_lm_labels is deprecated. Use labels.", FutureWarning, stacklevel=5)
    if labels is not None:
        raise ValueError("labels and masked_lm_labels are the same argument. Pass only labels.")
    return masked_lm_labels

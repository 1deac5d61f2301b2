"""The encoder with its pooler as one layer, and the model that is nothing else."""

from typing import Any

from albertkit.keras.backend import keras
from albertkit.keras.inputs import expand_attention_mask, expand_head_mask
from albertkit.keras.layers import AlbertEmbeddings, AlbertTransformer, Brick, Tensor, ops
from albertkit.keras.pretrained import TFAlbertPreTrainedModel
from albertkit.tuple_outputs import make_output


class AlbertMainLayer(Brick):
    """Embeddings, encoder and pooler, which every model holds as `albert`."""

    def make_parts(self, *, add_pooling_layer: bool) -> None:
        config = self.config
        self.embeddings = AlbertEmbeddings(config, name="embeddings", dtype=self.dtype_policy)
        self.encoder = AlbertTransformer(config, name="encoder", dtype=self.dtype_policy)
        self.pooler = None
        if add_pooling_layer:
            self.pooler = self.dense("pooler", config.hidden_size, config.hidden_size)

    def call(
        self,
        inputs: dict[str, Tensor],
        *,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Any:
        """Encode a batch of checked inputs.

        Returns:
            A `TupleOutput` with last_hidden_state (B, T, H) and, where they are there, pooler_output (B, H),
            hidden_states and attentions.
        """
        config = self.config
        last_hidden_state, hidden_states, attentions = self.encoder(
            self.embeddings(inputs),
            attention_mask=expand_attention_mask(inputs.get("attention_mask")),
            head_mask=expand_head_mask(inputs.get("head_mask"), depth=config.depth),
            output_attentions=config.output_attentions if output_attentions is None else output_attentions,
            output_hidden_states=(
                config.output_hidden_states if output_hidden_states is None else output_hidden_states
            ),
        )
        pooled = None
        if self.pooler is not None:
            pooled = ops.tanh(self.pooler(last_hidden_state[:, 0]))  # (B, T, H) -> (B, H)
        return make_output(
            "BaseModelOutputWithPooling",
            last_hidden_state=last_hidden_state,
            pooler_output=pooled,
            hidden_states=hidden_states,
            attentions=attentions,
        )


def make_encoder(model: TFAlbertPreTrainedModel, *, add_pooling_layer: bool) -> AlbertMainLayer:
    """The layer `albert` of a model."""
    return AlbertMainLayer(
        model.config, name="albert", dtype=model.dtype_policy, add_pooling_layer=add_pooling_layer
    )


@keras.saving.register_keras_serializable(package="albertkit")
class TFAlbertModel(TFAlbertPreTrainedModel):
    """The bare encoder: `outputs[0]` is last_hidden_state (B, T, H), `outputs[1]` pooler_output (B, H)."""

    output_name = "BaseModelOutputWithPooling"

    def make_parts(self) -> None:
        self.albert = make_encoder(self, add_pooling_layer=True)

    def answer(self, encoded: Any) -> dict[str, Tensor]:
        return {"last_hidden_state": encoded.last_hidden_state, "pooler_output": encoded.pooler_output}

"""Facts about a model: device, data type, size."""

import torch
from torch import Tensor, nn

from albertkit.config import AlbertConfig


class ModelFacts(nn.Module):
    """The properties of `AlbertPreTrainedModel` that do not depend on its architecture."""

    config: AlbertConfig

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the word embeddings, V x E."""
        raise NotImplementedError

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
    def can_generate(cls) -> bool:
        """Return False: ALBERT models cannot generate text."""
        return False

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """A small batch of inputs for tracing the model."""
        return {"input_ids": torch.tensor([[self.config.bos_token_id, 5, 6, self.config.eos_token_id]])}

"""The network in PyTorch. It needs the `torch` extra."""

from albertkit.extras import require

require("torch", extra="torch")

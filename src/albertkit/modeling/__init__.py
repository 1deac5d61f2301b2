"""The network in PyTorch. It needs the extra `torch`."""

from albertkit.extras import require

require("torch", extra="torch")

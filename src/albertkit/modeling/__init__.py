"""The network in PyTorch, which the extra `torch` installs."""

from albertkit.extras import require

require("torch", extra="torch")

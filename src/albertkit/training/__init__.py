"""The training loop, which needs the extra `train`."""

from albertkit.extras import require

require("torch", extra="train")

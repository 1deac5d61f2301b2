"""Engines, which compute the scores of rows of token ids in ONNX Runtime or PyTorch."""

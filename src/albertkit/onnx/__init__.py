"""Build ALBERT as ONNX graphs, for files and for the engine `onnx`; needs no torch."""

"""Write a model to an ONNX file, and compare the file with the reference; needs no torch."""

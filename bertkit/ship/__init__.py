"""Models as others run them: ONNX graphs, in int8 behind a gate, and a page that tags by itself."""

"""Operators: the meaning of each ONNX operator version. One module a family, named as in ``onnx/defs``."""

"""Operators compared with ONNX Runtime on drawn inputs: ``python -m drawn [OP ...]`` from this folder.

One module a family of operators; each has a function ``draws(rng)`` that yields :class:`~drawn.case.Case` objects over every version
of its operators. What a comparison found, and nobody but the text of the specification decides, is kept as literal tests elsewhere.
"""

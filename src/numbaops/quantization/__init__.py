"""Linear quantization and dequantization of arrays, as the texts of QuantizeLinear and DequantizeLinear have them.

What the texts leave open, here: a quotient that is NaN gives the lowest integer; a division by zero gives what IEEE 754 has, and
so an end of the range or NaN; a scale in int32 without ``precision`` divides in float64; the zero point of a float type is added in
float32. Dequantization subtracts exactly, multiplies in float32 and rounds once to the result's type. With float64, which
the texts do not have, all is computed in float64.
"""

from __future__ import annotations

from numbaops.quantization.linear import PRECISIONS, QUANTIZED, SCALES, SOURCES, Dequantizer, Quantizer, dynamic_quantize
from numbaops.quantization.walks import prepare

__all__ = ["PRECISIONS", "QUANTIZED", "SCALES", "SOURCES", "Dequantizer", "Quantizer", "dynamic_quantize", "prepare"]

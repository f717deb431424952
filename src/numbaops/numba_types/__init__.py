"""Arrays and scalars of the ml_dtypes element types inside ``@njit`` functions.

After :func:`register_numba_types` Numba knows bfloat16, the five float8 types, both float6 types, float4, int4, uint4, int2 and uint2::

    import ml_dtypes, numba, numpy as np
    from numbaops import register_numba_types

    register_numba_types()


    @numba.njit
    def scale(x, factor, out):
        for i in range(x.size):
            out[i] = np.float32(x[i]) * factor  # rounds once, on the store

What holds, each bit as in ml_dtypes unless said:

- Reading an element is exact. Storing one rounds to nearest, ties to even; beyond the largest value it gives infinity where the type
  has it, else NaN where it has that, else the largest value. From float64 and from integers of 32 and 64 bits there is one rounding;
  ml_dtypes has two there, the first to float32. float8_e8m0fnu rounds ties up, as in ml_dtypes since 0.6.
  Integers wrap; a float is cut to int32 first, and what int32 cannot hold gives 0.
- An operation on two floats of these types computes in float32 and rounds its result; on two integers it computes in int32 and wraps.
  So a sum of products that should keep float32's precision converts first: ``np.float32(x[i]) * np.float32(y[i])``.
- Two operands of different types are converted to the type that ``np.promote_types`` gives; where it gives none, a NumPy operand counts as
  it would beside float32 (or int32), and two of these types are a typing error. An integer literal takes the other operand's type.
  A Python float is a float64 in Numba, always.
- The float types divide by zero as IEEE 754 says. Everything else that divides obeys Numba's ``error_model``: ZeroDivisionError
  unless it is ``"numpy"``. ``/`` of two integers gives float64, as it does for Numba's other integers.
- Bits of a byte above a 2-, 4- or 6-bit element are ignored on reading, and zero on writing.
- Whole-array arithmetic and NumPy's element-wise functions on these types are typing errors: loop over the elements. Reductions that Numba
  itself writes as loops, such as ``sum``, compile, and accumulate in the type, as ml_dtypes does: 1000 ones of bfloat16 make 256.
  ``math`` functions take such a scalar as float32.

With ``NUMBA_DISABLE_JIT=1`` registering does nothing harmful, and ml_dtypes itself computes.
"""

from __future__ import annotations

import threading

from numbaops.errors import UnsupportedError

__all__ = ["register_numba_types"]

_lock = threading.Lock()
_registered = False


def register_numba_types() -> None:
    """Teach Numba the element types of ml_dtypes, in this process; a second call does nothing.

    Raises:
        UnsupportedError: another library has registered one of these dtypes with Numba.
    """
    global _registered
    with _lock:
        if _registered:
            return
        from numba.np import numpy_support

        from numbaops.numba_types import model, operators

        for dtype in model.NUMBA_TYPES:
            if dtype in numpy_support.FROM_DTYPE:
                raise UnsupportedError(
                    f"another library has registered {dtype} with Numba, as {numpy_support.FROM_DTYPE[dtype]!r}; use one of the two"
                )
        model.register()
        operators.register()
        _registered = True

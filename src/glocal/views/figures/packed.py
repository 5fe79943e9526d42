"""Maps as few bytes: whole numbers, deflated, base64."""

import base64
import zlib
from typing import Any

import numpy

# Up to this many cells a map is kept in 16 bits, above in 8.
FINE_CELLS = 1_000_000


def packed(values: numpy.ndarray, scale: float = 1.0) -> dict[str, Any]:
    """`values` [layer, head, target, source], from 0 to `scale`, as `top` times the square root of their share of `scale`.

    The root keeps small values apart. The whole number above `top` means undefined; `error` is the largest error of a value.
    """
    bits = 16 if values.size <= FINE_CELLS else 8
    top = 65534 if bits == 16 else 254
    known = numpy.isfinite(values)
    # Rounding alone may leave a share above one.
    root = numpy.sqrt(numpy.clip(numpy.where(known, values, 0) / scale, 0, 1))
    whole = numpy.where(known, numpy.rint(root * top), top + 1).astype("<u2" if bits == 16 else "u1")
    error = scale * (1 - (1 - 0.5 / top) ** 2)
    data = base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode("ascii")
    return {"bits": bits, "top": top, "scale": scale, "shape": list(values.shape), "error": error, "data": data}


def unpacked(made: dict[str, Any]) -> numpy.ndarray:
    """The inverse of `packed`, as the page does it; undefined values are NaN."""
    raw = zlib.decompress(base64.b64decode(made["data"]))
    whole = numpy.frombuffer(raw, "<u2" if made["bits"] == 16 else "u1").reshape(made["shape"]).astype(float)
    return numpy.where(whole > made["top"], numpy.nan, made["scale"] * (whole / made["top"]) ** 2)

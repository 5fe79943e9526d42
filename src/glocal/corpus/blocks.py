"""Results of a block of texts as bytes: arrays by name and facts, with a digest, so that damage is seen."""

import hashlib
import json
from typing import Any

import numpy
from numpy.typing import NDArray

from glocal.corpus.places import Place
from glocal.errors import StudyError


def packed(arrays: dict[str, NDArray], facts: dict[str, Any]) -> bytes:
    """Arrays by name, and facts as JSON; the same bytes for the same contents."""
    order = sorted(arrays)
    head = {
        "facts": facts,
        "arrays": [{"name": name, "type": str(arrays[name].dtype), "shape": list(arrays[name].shape)} for name in order],
    }
    pieces = [json.dumps(head, ensure_ascii=False).encode(), b"\n", *(numpy.ascontiguousarray(arrays[name]).tobytes() for name in order)]
    body = b"".join(pieces)
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def read_block(place: Place, name: str) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """What `packed` made of arrays and facts; raises `StudyError` where a byte is missing or changed."""
    try:
        digest, _, body = place.read(name).partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise ValueError("the digest does not fit")
        line, _, data = body.partition(b"\n")
        head = json.loads(line)
        arrays, position = {}, 0
        for each in head["arrays"]:
            size = int(numpy.prod(each["shape"], dtype=int)) * numpy.dtype(each["type"]).itemsize
            arrays[each["name"]] = numpy.frombuffer(data[position : position + size], each["type"]).reshape(each["shape"])
            position += size
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(
            "A block of the study is damaged.",
            asked=f"{place}/{name}",
            found=str(error),
            do="delete this file and start the same command again",
        ) from error
    return arrays, head["facts"]

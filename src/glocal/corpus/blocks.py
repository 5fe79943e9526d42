"""Results of a study on disk: one file per block of texts, whole or not there, with a digest of its contents."""

import hashlib
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from glocal.errors import StudyError

_DIGEST = "digest"


def write_whole(path: Path, contents: bytes) -> None:
    """Write a file that appears whole or not at all, also after power was lost; raises `StudyError` where that is impossible."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with temporary.open("wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StudyError(
            "The study cannot be written.",
            asked=path,
            found=error.strerror or str(error),
            do="check free space and rights; what is finished is kept, start the same command again",
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_block(path: Path, arrays: dict[str, NDArray], facts: dict[str, Any]) -> None:
    """Write one block: arrays by name, and facts as JSON."""
    order = sorted(arrays)
    head = {
        "facts": facts,
        "arrays": [{"name": name, "type": str(arrays[name].dtype), "shape": list(arrays[name].shape)} for name in order],
    }
    body = (
        json.dumps(head, ensure_ascii=False).encode() + b"\n" + b"".join(numpy.ascontiguousarray(arrays[name]).tobytes() for name in order)
    )
    write_whole(path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def read_block(path: Path) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """What `write_block` wrote; raises `StudyError` where a byte is missing or changed."""
    try:
        contents = path.read_bytes()
        digest, _, body = contents.partition(b"\n")
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
            "A block of the study is damaged.", asked=path, found=str(error), do="delete this file and start the same command again"
        ) from error
    return arrays, head["facts"]

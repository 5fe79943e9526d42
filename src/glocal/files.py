"""Files that appear whole or not at all."""

import os
import secrets
from pathlib import Path


def write_whole(path: Path, contents: bytes) -> None:
    """Write beside the destination, make it last (also when power is lost), and rename; raises `OSError`, and leaves nothing behind."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with temporary.open("wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)

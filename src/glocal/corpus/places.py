"""Where a study lies: a folder of this machine, or any place that fsspec can reach (s3://, gs://, memory://)."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import fsspec

from glocal.errors import StudyError
from glocal.files import write_whole


class Place:
    """A folder of this machine. Files appear whole or not at all, also when power is lost."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def __truediv__(self, name: str) -> "Place":
        return Place(self.folder / name)

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return (self.folder / name).is_file()

    def names(self, suffix: str) -> list[str]:
        """Names with this ending, in order."""
        return sorted(path.name for path in self.folder.glob(f"*{suffix}") if not path.name.startswith("."))

    def read(self, name: str) -> bytes:
        """The whole file; raises `OSError`."""
        return (self.folder / name).read_bytes()

    def write(self, name: str, contents: bytes) -> None:
        """Write one file; raises `StudyError`."""
        with self._telling(name):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / name, contents)

    @contextmanager
    def stream(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write piece by piece, which gets its name at the end."""
        temporary = self.folder / f".{name}.{secrets.token_hex(6)}"
        with self._telling(name):
            try:
                with temporary.open("wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self.folder / name)
            finally:
                temporary.unlink(missing_ok=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One run per folder and machine; the lock goes with the process, however it ends."""
        import fcntl

        with self._telling(".lock"):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("a")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StudyError(
                    "Another run works in this folder.", asked=self, do="wait for it, or use another folder and merge them later"
                ) from error
            yield

    @contextmanager
    def _telling(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StudyError(
                "The study cannot be written.",
                asked=f"{self}/{name}",
                found=error.strerror or str(error),
                do="check free space and rights; what is finished is kept, start the same command again",
            ) from error


class Remote(Place):
    """The same through fsspec. Object stores write a file whole or not; nothing keeps two runs apart."""

    def __init__(self, address: str):
        self.address = address.rstrip("/")
        self.files, self.path = fsspec.url_to_fs(self.address)

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> "Place":
        return Remote(f"{self.address}/{name}")

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return bool(self.files.isfile(f"{self.path}/{name}"))

    def names(self, suffix: str) -> list[str]:
        """Names with this ending, in order."""
        found: list[Any] = []
        with suppress(FileNotFoundError):
            found = self.files.ls(self.path, detail=False, refresh=True)
        return sorted(name for each in found if (name := str(each).rpartition("/")[2]).endswith(suffix) and not name.startswith("."))

    def read(self, name: str) -> bytes:
        """The whole file; raises `OSError`."""
        return bytes(self.files.cat_file(f"{self.path}/{name}"))

    def write(self, name: str, contents: bytes) -> None:
        """Write one file; raises `StudyError`."""
        with self._telling(name):
            self.files.makedirs(self.path, exist_ok=True)
            self.files.pipe_file(f"{self.path}/{name}", contents)

    @contextmanager
    def stream(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write piece by piece."""
        with self._telling(name), self.files.open(f"{self.path}/{name}", "wb") as file:
            yield file

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing: object stores have no locks."""
        yield


def place_of(path: str | os.PathLike[str]) -> Place:
    """The place that `path` names; raises `StudyError` for an address that cannot be reached."""
    if "://" not in str(path):
        return Place(Path(path))
    try:
        return Remote(str(path))
    except (ImportError, ValueError, OSError) as error:
        raise StudyError(
            "This address cannot be used.", asked=path, found=str(error), do="install the fsspec package for it, or use a folder"
        ) from error


def read_json(place: Place, name: str) -> Any:
    """What a JSON file holds; raises `StudyError` where it is damaged."""
    try:
        return json.loads(place.read(name))
    except (OSError, ValueError) as error:
        raise StudyError("A file of the study is damaged.", asked=f"{place}/{name}", found=str(error), do="use another folder") from error

# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Folders in which files appear whole or not at all: local ones, and those that a URL names, which
the package fsspec opens.

Threads. Any thread; two writers of one folder need different names of `writer`.
"""

import contextlib
import importlib
import os
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

from basin import notices
from basin.errors import NotFound, Unsupported


class Folder(Protocol):
    def write(self, name: str, writer: str, fill: Callable[[BinaryIO], None]) -> None:
        """Makes or replaces the file with what `fill` writes. If it fails, the file is as before.

        writer: names the temporary file
        """

    def open(self, name: str) -> BinaryIO:
        """Raises NotFound."""

    def names(self) -> list[str]: ...

    def remove(self, name: str) -> None: ...

    def has_folder(self, name: str) -> bool: ...


def folder_at(place: str | os.PathLike[str]) -> Folder:
    """A path, or a URL such as s3://bucket/run. Raises Unsupported for a URL without fsspec."""
    text = os.fspath(place)
    return _Remote(text) if "://" in text else _Local(text)


def split(place: str | os.PathLike[str]) -> tuple[str, str]:
    """Splits the path of a file into its folder and its name."""
    folder, name = os.path.split(os.fspath(place))
    return folder or os.curdir, name


def _temporary(writer: str) -> str:
    return f".{writer.replace('/', '_')}.part"


class _Local:
    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, name: str, writer: str, fill: Callable[[BinaryIO], None]) -> None:
        if not os.path.isdir(self._path):
            os.makedirs(self._path, exist_ok=True)
            notices.tell(f"basin: made the folder {self._path}, which was not there")
        temporary = os.path.join(self._path, _temporary(writer))
        try:
            with open(temporary, "wb") as stream:
                fill(stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, os.path.join(self._path, name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        opened = os.open(self._path, os.O_RDONLY)  # The name is durable with the folder.
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    def open(self, name: str) -> BinaryIO:
        path = os.path.join(self._path, name)
        try:
            return open(path, "rb")
        except FileNotFoundError as error:
            raise NotFound(f"There is no file {path}.") from error

    def names(self) -> list[str]:
        return os.listdir(self._path) if os.path.isdir(self._path) else []

    def remove(self, name: str) -> None:
        os.unlink(os.path.join(self._path, name))

    def has_folder(self, name: str) -> bool:
        return os.path.isdir(os.path.join(self._path, name))


class _Remote:
    def __init__(self, url: str) -> None:
        try:
            core: Any = importlib.import_module("fsspec.core")
        except ImportError as error:
            raise Unsupported(
                f"{url} needs the package fsspec. Install it, or use a path."
            ) from error
        self._files, self._root = core.url_to_fs(url)

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def write(self, name: str, writer: str, fill: Callable[[BinaryIO], None]) -> None:
        self._files.makedirs(self._root, exist_ok=True)
        temporary = self._at(_temporary(writer))
        try:
            with self._files.open(temporary, "wb") as stream:
                fill(stream)
            self._files.mv(temporary, self._at(name))
        except BaseException:
            with contextlib.suppress(Exception):
                self._files.rm(temporary)
            raise

    def open(self, name: str) -> BinaryIO:
        try:
            opened: BinaryIO = self._files.open(self._at(name), "rb")
        except FileNotFoundError as error:
            raise NotFound(f"There is no file {self._at(name)}.") from error
        return opened

    def names(self) -> list[str]:
        if not self._files.isdir(self._root):
            return []
        return [each.rstrip("/").rpartition("/")[2] for each in self._files.ls(self._root, False)]

    def remove(self, name: str) -> None:
        self._files.rm(self._at(name))

    def has_folder(self, name: str) -> bool:
        return bool(self._files.isdir(self._at(name)))

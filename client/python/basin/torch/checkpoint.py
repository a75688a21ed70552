# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The format of checkpoints: parts by name, each with its hash, and a manifest.

A file holds the parts, one after another, then the manifest as JSON, then a footer with the length
and the hash of the manifest. So it is written in one pass, and one that is incomplete has no
footer. A part is a pickle of plain data and after it the bytes of the large tensors in it.

Everything is verified before anything is made of it. What is made is plain data: a file cannot name
code to run.
"""

import hashlib
import io
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import torch

from basin.contract import CONTRACT_VERSION
from basin.errors import DataCorrupt, Mismatch, VersionMismatch
from basin.torch import apart, plain, raw
from basin.torch.apart import Apart
from basin.torch.packing import Unpacker, pack_apart

FORMAT = 1
# That of a dict with tensors by key.
TENSORS_FORMAT = 2
_MAGIC = b"basin checkpoint\n"
_LENGTH = struct.Struct(">Q")
_FOOTER = struct.Struct(">Q32s17s")  # The manifest's size and hash, then _MAGIC.
MANIFEST = "manifest"


@dataclass
class Captured:
    """The value of a part at one time.

    kind:   of which class its owner is
    packed: everything but the large tensors
    large:  these, on the CPU, in C order
    """

    kind: str
    packed: bytes
    large: list[torch.Tensor]

    @classmethod
    def of(cls, name: str, kind: str, value: Any) -> "Captured":
        """Copies small tensors and those that are not on the CPU. Raises InvalidArgument, with the
        name, for what is not plain data."""
        plain.check(name, value)
        return cls(kind, *pack_apart(value))

    def chunks(self) -> Iterator[Any]:
        yield _LENGTH.pack(len(self.packed))
        yield self.packed
        for tensor in self.large:
            yield raw.bytes_on_host(tensor).numpy().data


@dataclass
class Manifest:
    """What a checkpoint says about itself.

    contract: the version of the arithmetic
    step:     the step with which training goes on
    rounds:   by lane of gradients: the number of the last round that the state has applied
    chains:   by lane: the chain of that round, which is equal on all workers with this history
    parts:    by name: `kind`, `bytes` and `sha256`; and `tensors` if it has them by key
    """

    step: Any = None
    rounds: dict[str, int] = field(default_factory=dict)
    chains: dict[str, int] = field(default_factory=dict)
    basin: str = ""
    contract: int = CONTRACT_VERSION
    format: int = FORMAT
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, name: str, kind: str, size: int, digest: str, **more: Any) -> None:
        self.parts[name] = {"kind": kind, "bytes": size, "sha256": digest, **more}

    def dump(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def load(cls, where: str, text: str | bytes) -> "Manifest":
        """Raises DataCorrupt if this is none, and VersionMismatch for one of another format or of
        another version of the arithmetic."""
        try:
            found = json.loads(text)
            version, contract = found["format"], found["contract"]
        except (ValueError, TypeError, KeyError) as error:
            raise DataCorrupt(f"The manifest of {where} cannot be read: {error!r}.") from error
        for what, known, was in (
            ("format", (FORMAT, TENSORS_FORMAT), version),
            ("version of the arithmetic", (CONTRACT_VERSION,), contract),
        ):
            if was not in known:
                raise VersionMismatch(
                    f"The {what} of {where} is {was}, and that of this release of Basin is "
                    f"{known[-1]}. Resume with the release that wrote it, "
                    f"{found.get('basin', 'unknown')}."
                )
        try:
            return cls(**found)
        except TypeError as error:
            raise DataCorrupt(f"The manifest of {where} cannot be read: {error}.") from error


def write(stream: BinaryIO, manifest: Manifest, parts: Mapping[str, Captured]) -> None:
    stream.write(_MAGIC)
    for name, part in parts.items():
        digest, size = hashlib.sha256(), 0
        for chunk in part.chunks():
            digest.update(chunk)
            stream.write(chunk)
            size += len(chunk)
        manifest.note(name, part.kind, size, digest.hexdigest())
    text = manifest.dump().encode()
    stream.write(text)
    stream.write(_FOOTER.pack(len(text), hashlib.sha256(text).digest(), _MAGIC))


def to_dict(manifest: Manifest, parts: Mapping[str, Captured | Apart]) -> dict[str, Any]:
    """The same by name, as tensors by key or as bytes; the manifest is a string."""
    contents: dict[str, Any] = {}
    for name, part in parts.items():
        if isinstance(part, Apart):
            contents[name] = made = part.to_dict()
            described = part.described()
            digest, size = apart.digest_of(described, made)
            manifest.note(name, part.kind, size, digest, tensors=described)
            manifest.format = TENSORS_FORMAT
        else:
            contents[name] = content = b"".join(part.chunks())
            digest = hashlib.sha256(content).hexdigest()
            manifest.note(name, part.kind, len(content), digest)
    return {MANIFEST: manifest.dump(), **contents}


def read(where: str, stream: BinaryIO) -> tuple[Manifest, dict[str, bytes]]:
    """Returns what write() has written. Raises DataCorrupt for an incomplete or damaged file."""
    end = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    if end < len(_MAGIC) or stream.read(len(_MAGIC)) != _MAGIC:
        raise DataCorrupt(
            f"The beginning of {where} is damaged, or it is not a checkpoint of Basin."
        )
    damaged = DataCorrupt(
        f"The end of {where} is missing or damaged. Use an older checkpoint, or a copy of this one."
    )
    begin = end - _FOOTER.size
    if begin < len(_MAGIC):
        raise damaged
    stream.seek(begin)
    length, digest, magic = _FOOTER.unpack(stream.read(_FOOTER.size))
    if magic != _MAGIC or length > begin - len(_MAGIC):
        raise damaged
    stream.seek(begin - length)
    text = stream.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise DataCorrupt(f"The manifest of {where} is damaged. Use an older checkpoint.")
    manifest = Manifest.load(where, text)
    stream.seek(len(_MAGIC))
    return manifest, {name: stream.read(each["bytes"]) for name, each in manifest.parts.items()}


def from_dict(where: str, given: Mapping[str, Any]) -> tuple[Manifest, dict[str, Any]]:
    """Returns what to_dict() was made of. Raises DataCorrupt if the manifest is missing."""
    if not isinstance(given.get(MANIFEST), str):
        raise DataCorrupt(f"There is no manifest in {where}, so basin.torch.State has not made it.")
    manifest = Manifest.load(where, given[MANIFEST])
    return manifest, {name: value for name, value in given.items() if name != MANIFEST}


def verify(
    where: str, manifest: Manifest, contents: Mapping[str, Any], kinds: Mapping[str, str]
) -> None:
    """Checks that the parts are whole, and those of a state with parts of these `kinds`, by name.

    Raises DataCorrupt for a part that is missing or damaged, and Mismatch for a part that only one
    side has, or whose class differs."""
    for name, noted in manifest.parts.items():
        content, described = contents.get(name), noted.get("tensors")
        if described is None and isinstance(content, bytes):
            digest = hashlib.sha256(content).hexdigest()
        elif described is not None and isinstance(content, Mapping):
            apart.check(where, name, described, content)
            digest, _ = apart.digest_of(described, content)
        else:
            raise DataCorrupt(f"Part {name} of {where} is missing, and its manifest lists it.")
        if digest != noted["sha256"]:
            raise DataCorrupt(
                f"Part {name} of {where} is damaged: its hash is not that of the manifest. Use an "
                "older checkpoint."
            )
    for name in sorted(manifest.parts.keys() - kinds.keys()):
        raise Mismatch(
            f"Only {where} has the part {name}, and this State has none, so it would not be "
            f"restored. Give State the same parts: {plain.names(manifest.parts)}."
        )
    for name in sorted(kinds.keys() - manifest.parts.keys()):
        raise Mismatch(
            f"Only this State has the part {name}, and {where} has none, so not all would be "
            f"restored. It has {plain.names(manifest.parts)}."
        )
    for name, kind in kinds.items():
        if manifest.parts[name]["kind"] != kind:
            raise Mismatch(
                f"Part {name} is a {kind} here, and a {manifest.parts[name]['kind']} in {where}. "
                "Make the same objects as the script that wrote it."
            )


class _PlainUnpacker(Unpacker):
    def find_class(self, module: str, name: str) -> Any:
        if not plain.is_allowed(module, name):
            raise DataCorrupt(f"It refers to {module}.{name}, which is not plain data.")
        return super().find_class(module, name)


def value_of(where: str, name: str, content: bytes) -> Any:
    """The value of a part that is bytes. REQUIRES: verify() has passed."""
    (length,) = _LENGTH.unpack_from(content)
    at = _LENGTH.size + length
    unpacker = _PlainUnpacker(io.BytesIO(content[_LENGTH.size : at]))
    try:
        value = unpacker.load()
        for _, tensor in sorted(unpacker.large.items()):
            size = tensor.numel() * tensor.element_size()
            flat = torch.frombuffer(bytearray(content[at : at + size]), dtype=torch.uint8)
            tensor.view(-1).view(torch.uint8).copy_(flat)
            at += size
    except Exception as error:
        raise DataCorrupt(f"Part {name} of {where} cannot be read: {error}") from error
    return value


def plain_of(where: str, name: str, packed: bytes) -> Any:
    """What pack() has made of plain data. Raises DataCorrupt for anything else."""
    try:
        return _PlainUnpacker(io.BytesIO(packed)).load()
    except Exception as error:
        raise DataCorrupt(f"Part {name} of {where} cannot be read: {error}") from error

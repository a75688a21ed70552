# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Parts of a checkpoint as tensors by key, for torch.distributed.checkpoint: it shows, reads and
reshards them, and also without Basin. What is no tensor is apart, as bytes.

A reader of torch asks for the keys that its own state has. A new optimizer has no moments yet, so
the keys of all that a step would make are always there, with zeros for those that are not. `rest`
says which are real.
"""

import collections
import hashlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from basin.errors import DataCorrupt, Mismatch
from basin.torch import raw

REST = "rest"  # The key of the bytes. Those of tensors of optimizers have a dot.

# Options that change nothing but how a step is computed.
_IMPLEMENTATION = {"foreach", "fused", "capturable", "differentiable"}

# By key: the dtype, and the shape.
Described = dict[str, list[Any]]


@dataclass
class Apart:
    """The value of a part at one time.

    kind:    of which class its owner is
    tensors: by key: those that there are
    rest:    all else; None: there is nothing else
    zeros:   by key: for those that are not there yet
    """

    kind: str
    tensors: dict[str, torch.Tensor]
    rest: bytes | None = None
    zeros: dict[str, torch.Tensor] | None = None

    def to_dict(self) -> dict[str, Any]:
        """With copies of the tensors on the CPU."""
        copies = {key: raw.on_host(each).clone() for key, each in self.tensors.items()}
        rest = {} if self.rest is None else {REST: self.rest}
        return {**copies, **(self.zeros or {}), **rest}

    def described(self) -> Described:
        return {key: _described(each) for key, each in self.tensors.items()}


def _described(tensor: torch.Tensor) -> list[Any]:
    return [str(tensor.dtype), list(tensor.shape)]


def digest_of(keys: Iterable[str], content: Mapping[str, Any]) -> tuple[str, int]:
    """The hash of the tensors of these keys and of the rest, and how many bytes they are."""
    digest, size = hashlib.sha256(), 0
    for key in sorted(keys):
        described = f"{key}\n{_described(content[key])}\n"
        for chunk in (described.encode(), raw.bytes_on_host(content[key]).numpy().data):
            digest.update(chunk)
        size += content[key].nbytes
    rest = content.get(REST)
    if isinstance(rest, bytes):
        digest.update(rest)
        size += len(rest)
    return digest.hexdigest(), size


def check(where: str, part: str, noted: Described, content: Mapping[str, Any]) -> None:
    """Raises DataCorrupt for a tensor that is missing, and Mismatch for one that a reader has
    converted."""
    for key, described in noted.items():
        tensor = content.get(key)
        if not isinstance(tensor, torch.Tensor):
            raise DataCorrupt(
                f"Tensor {key} of part {part} is missing in {where}, and its manifest lists it. "
                "A reader of torch reads only what this State has: build the same model and "
                "optimizer first; if a forward or a step adds tensors to them, run one."
            )
        if _described(tensor) != described:
            dtype, shape = described
            raise Mismatch(
                f"Tensor {key} of part {part} is {tensor.dtype} of shape {tuple(tensor.shape)} "
                f"here, and was saved as {dtype} of shape {tuple(shape)}. Build the same model."
            )


def zeros_of(optimizer: torch.optim.Optimizer) -> list[dict[str, torch.Tensor]] | None:
    """The tensors that one step gives to the state of each parameter, as zeros on the CPU; None:
    only the optimizer itself knows. The step is that of a copy without memory.

    Only optimizers of torch are asked: another one may step something else besides.
    """
    kind = type(optimizer)
    if kind.__module__.partition(".")[0] != "torch":
        return None
    step: Any = kind.step
    if getattr(step, "hooked", False):
        step = inspect.unwrap(step, stop=lambda each: not getattr(each, "hooked", False))
    found = []
    for group in optimizer.param_groups:
        # A lazy one has no shape yet.
        lazy = map(torch.nn.parameter.is_lazy, group["params"])
        parameters = [
            torch.empty(0 if is_lazy else each.shape, dtype=each.dtype, device="meta")
            for each, is_lazy in zip(group["params"], lazy, strict=True)
        ]
        for each in parameters:
            each.grad = torch.empty_like(each)
        copy: Any = kind.__new__(kind)
        copy.__dict__.update(optimizer.__dict__)
        numbers = {key: value for key, value in group.items() if key not in _IMPLEMENTATION}
        copy.param_groups = [
            {
                **numbers,
                **dict.fromkeys(_IMPLEMENTATION & group.keys(), False),
                "params": parameters,
            }
        ]
        copy.state = collections.defaultdict(dict)
        try:
            step(copy)
        except Exception:
            # Some read a number of a parameter, after they have made the state of all.
            if not all(copy.state.get(each) for each in parameters):
                return None
        for each in parameters:
            made = copy.state.get(each, {})
            found.append(
                {
                    name: torch.zeros(value.shape, dtype=value.dtype, device="cpu")
                    for name, value in made.items()
                    if isinstance(value, torch.Tensor)
                }
            )
    return found

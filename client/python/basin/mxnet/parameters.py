# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Broadcasts of parameters, also of those that have no values yet because Gluon defers their
initialization to the first forward.

The root announces a parameter when it has values, and another worker takes them when it has some of
its own, which nobody has read by then. So each worker waits only for the root, at its own time, and
one parameter does not wait for another. All of them are of one version, on which the workers agree
when they make the call. A parameter that is initialized again is another value: the first one may
still be asked for.

Threads. One thread at a time: the one that runs forwards.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from basin import _abi
from basin.arguments import seconds, string_of
from basin.arrays import Array
from basin.client import Client
from basin.described import Described
from basin.errors import DeadlineExceeded, InvalidArgument, Mismatch, Unavailable, Unsupported
from basin.handle import CALL_PREFIX
from basin.mxnet import nd
from basin.mxnet.nd import gluon, mxnet
from basin.worker import TensorSpec

_LANE = CALL_PREFIX + "parameters"
# What is known of a parameter before its values are sent: dtype, shape and digest.
_HEADER_BYTES = 512


def broadcast_parameters(
    client: Client,
    params: Any,
    root_rank: int = 0,
    *,
    name: str = "parameters",
    timeout: float | None = 300.0,
) -> None:
    """Gives the parameters of all workers the root's values, bit for bit.

    params:  net.collect_params(), or a dict of names and parameters or arrays, with the same names
             on all workers. Those with grad_req="null", such as running means, are among them
    name:    another one for other parameters of the same names
    timeout: seconds until DeadlineExceeded; None: forever

    All workers make this call together, at the start. A parameter whose initialization is deferred
    gets the root's values right after it was initialized, in a forward or by load_parameters(),
    before anything reads it. It is enough that the root has loaded a checkpoint. What is equal
    already, because all have loaded it, is compared and not sent. A parameter that is initialized
    again, with force_reinit=True, is broadcast again, so do that on all workers.

    Raises Mismatch, on all workers, if the names differ; on one worker, with the numbers of both,
    if dtype or shape do; DeadlineExceeded, with the name of the parameter and the root, if the root
    does not initialize it in time, also in a forward; Unavailable if the root has left.
    """
    call = "broadcast_parameters()"
    string_of("name", name)
    seconds("timeout", timeout)
    client.check_begins(call)
    client.take_part(call)
    named = dict(_named(call, params))
    for key, each in named.items():
        _check(call, key, each)
    root = client.check_root(root_rank)
    described = Described.of(call, root, [(key, "parameter", ()) for key in named])
    version = client.agree_on_version(name, described, timeout)
    client.note_served()
    sharing = _Sharing(client, name, root, version, timeout)
    present = [(key, each) for key, each in named.items() if _arrays_of(each) is not None]
    for key, each in named.items():
        if isinstance(each, gluon.Parameter):
            sharing.watch(key, each)
    for key, each in present:
        sharing.share(key, _arrays_of(each) or [], 0)


def _named(call: str, params: Any) -> Iterator[tuple[str, Any]]:
    """Each parameter once, under its first name."""
    if not isinstance(params, (Mapping, gluon.ParameterDict)):
        raise InvalidArgument(
            f"{call} was given {type(params).__name__} as params. Use net.collect_params(), or a "
            "dict of names and parameters."
        )
    seen: set[int] = set()
    for key in sorted(params.keys()):
        each = params[key]
        if id(each) not in seen:
            seen.add(id(each))
            yield key, each


def _check(call: str, key: str, each: Any) -> None:
    if isinstance(each, mxnet.nd.NDArray):
        return
    if not isinstance(each, gluon.Parameter):
        raise InvalidArgument(
            f"{call} was given {type(each).__name__} as {key}. Give it parameters or arrays of "
            "MXNet."
        )
    if each._stype != "default":
        raise Unsupported(
            f"Parameter {key} has stype {each._stype}, whose rows lie in a kvstore. Use a dense "
            "parameter; its gradient may be sparse: Embedding(sparse_grad=True)."
        )
    if _arrays_of(each) is None and not each._deferred_init:
        raise InvalidArgument(
            f"Parameter {key} was not initialized before {call}. Call initialize() first; it may "
            "defer the parameter to the first forward."
        )


def _arrays_of(each: Any) -> list[Any] | None:
    """Its array on each context; None: it is deferred."""
    if not isinstance(each, gluon.Parameter):
        return [each]
    return None if each._data is None else list(each._data)


class _Sharing:
    """What one broadcast_parameters() has begun."""

    def __init__(
        self, client: Client, name: str, root: int, version: int, timeout: float | None
    ) -> None:
        self._client, self._name, self._root = client, name, root
        self._version, self._timeout = version, timeout
        # Ranks change when others leave, and the root stays the same.
        self._is_root = client.worker.place().has(root)
        self._source = client.worker.member_id(root)

    def watch(self, key: str, parameter: Any) -> None:
        """From now on the parameter is shared whenever it is initialized."""
        kind = type(parameter)
        times = 0 if parameter._data is None else 1

        def initialize(data: Any, contexts: Any) -> None:
            nonlocal times
            moves = parameter._data is not None  # Only to other contexts: reset_ctx().
            kind._init_impl(parameter, data, contexts)
            if moves:
                return
            try:
                with mxnet.autograd.pause():
                    self.share(key, list(parameter._data), times)
            except BaseException:
                # Its own values are not those of the others, so it is as before the forward.
                parameter._data = parameter._grad = None
                parameter._deferred_init = (None, list(contexts), None, data)
                raise
            times += 1

        parameter._init_impl = initialize

    def share(self, key: str, arrays: list[Any], times: int) -> None:
        """Gives or takes the values of a parameter that has some, for the n-th time."""
        if self._client.is_closed:
            return  # The training is over.
        full = f"{self._name}/{key}" + (f"/again {times}" if times > 0 else "")
        self._client.note_served()
        mine = nd.read(key, arrays[0])
        if self._is_root:
            self._give(full, mine)
        else:
            theirs = self._take(key, full, mine)
            if theirs is not None:
                for each in arrays:
                    nd.write(each, theirs)

    def _give(self, full: str, mine: Array) -> None:
        worker = self._client.worker
        header = _header(mine)
        for spec, memory in ((_header_of(full), header), (_values_of(full, mine), mine)):
            if memory.nbytes > 0:
                worker.announce(_LANE, spec, self._version, memory.ctypes.data, memory.nbytes)

    def _take(self, key: str, full: str, mine: Array) -> Array | None:
        """None: these are the root's values already."""
        began = time.monotonic()
        header = np.empty(_HEADER_BYTES, np.uint8)

        def get(spec: TensorSpec, memory: Array) -> None:
            left = None
            if self._timeout is not None:
                left = max(0.0, self._timeout - (time.monotonic() - began))
            place = memory.ctypes.data, memory.nbytes
            self._client.worker.get(_LANE, spec, self._version, self._source, left, *place)

        self._wait(key, lambda: get(_header_of(full), header))
        dtype, shape, digest = json.loads(header.tobytes().rstrip(b"\0"))
        if (dtype, tuple(shape)) != (mine.dtype.name, mine.shape):
            raise Mismatch(
                f"Parameter {key} is {mine.dtype.name} of shape {mine.shape} on worker "
                f"{self._client.worker.id}, and {dtype} of shape {tuple(shape)} on worker "
                f"{self._source} of rank {self._root}, the root. Build the same net, and give it "
                "inputs of the same shape."
            )
        if digest == _digest(mine):
            return None
        theirs = np.empty_like(mine)
        self._wait(key, lambda: get(_values_of(full, mine), theirs))
        return theirs

    def _wait(self, key: str, get: Callable[[], None]) -> None:
        mine = self._client.worker.id
        root = f"worker {self._source} of rank {self._root}"
        try:
            get()
        except DeadlineExceeded as error:
            raise DeadlineExceeded(
                f"Worker {mine} has waited {self._timeout:g} s for the values of parameter {key}, "
                f"which {root} gives when it initializes it. Initialize it on all workers in the "
                "same step: give all of them, or the root, the input sizes or a checkpoint, and "
                "run the same forwards."
            ) from error
        except Unavailable as error:
            raise Unavailable(
                f"Worker {mine} has no values of parameter {key}: {root}, the root, has left "
                f"before it gave them. End the job, and start all workers again. ({error})"
            ) from error


def _digest(values: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def _header(values: Array) -> Array:
    text = json.dumps([values.dtype.name, values.shape, _digest(values)])
    return np.frombuffer(text.encode().ljust(_HEADER_BYTES, b"\0"), np.uint8)


def _header_of(full: str) -> TensorSpec:
    return TensorSpec(f"{full}/header", _abi.U8, (_HEADER_BYTES,))


def _values_of(full: str, values: Array) -> TensorSpec:
    return TensorSpec(full, _abi.U8, (values.nbytes,))

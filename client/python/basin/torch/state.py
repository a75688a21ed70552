# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Transfers the state of the job to late joiners.

The broadcasts at the start of a script register the state: parameters, buffers, optimizers, and
values such as the step number. When a verdict admits a worker, two members serve the state: the
donor that the verdict names, and one more in case the donor dies. They do so when they begin the
next round, because by then the rest of the step is done: the scheduler has stepped, and the step is
counted. The parameters and the optimizer's state are served in place. They do not change before the
next step, which needs a round that cannot complete without the joiner. Buffers change in the
forward before it, so they are copied after each step. Tensors on CUDA devices are copied to the
host, and from there to the devices of the joiner's own. A paused job waits for the joiner in the
middle of a round, so members also check for joiners while they wait.

If the others' State has catch_up=, they do not wait for the joiner: ahead.py takes part in its
rounds while it loads. The members then serve copies, until a round has a contribution of everyone.
In that round a checksum of the parameters is compared.

In the joiner, the same broadcasts load the state instead of taking part. Everything that it loads
comes from one member and one boundary: the version is the generation in which the joiner joined. If
the member dies, the joiner starts again with the other one. A worker that comes back after an
eviction compares digests first, and requests only what it does not have (digests.py).

Threads. One thread at a time: the one that runs backward and step.
"""

import io
import itertools
import json
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from basin import _abi
from basin.errors import (
    DataCorrupt,
    DeadlineExceeded,
    Error,
    Evicted,
    FailedPrecondition,
    Mismatch,
    Unavailable,
    Unsupported,
)
from basin.spec import RoundSpec
from basin.torch import digests, plain, raw, tensors
from basin.torch.ahead import Ahead, Copies, Room, room_for, sum_of
from basin.torch.digests import Digests, Known
from basin.torch.given import Given
from basin.torch.lazily import LazyTensors
from basin.torch.optimizer_numbers import LoadedNumbers
from basin.torch.packing import Unpacker, fill, pack, pack_apart, unpack
from basin.torch.shared import Part, SharedValues, Tensors
from basin.worker import Place, RoundInfo, TensorSpec, Worker, logger

_RECORD = TensorSpec("record", _abi.U8, (512,))
# The checksum of the parameters before the step of a round, whose number is the version.
_SUM = TensorSpec("sum", _abi.U8, (8,))
# A member that serves makes a call in which it waits for the joiners.
_IN_CALL = TensorSpec("in call", _abi.U8, (1,))
# A request fails after this time, plus one second for each _SLOWEST_BYTES_PER_SECOND.
_PATIENCE_SECONDS = 5.0
_SLOWEST_BYTES_PER_SECOND = 10e6
_TIMEOUT_SECONDS = 300.0
# How long to request the record from the donor, and then from any member, in turns.
_RECORD_SECONDS = 1.0
# How long to look whether there is a value.
_LOOK_SECONDS = 0.01


def boundary_of(place: Place) -> tuple[str, int]:
    """The lane and the version of the state that the newest members take. The version grows with
    each generation of a term in which workers joined. The term needs most of 64 bits itself."""
    term, counter = place.donor_since
    return f"state/{term}", counter


def optimizer_key(optimizer: torch.optim.Optimizer) -> Hashable:
    return "optimizer", id(optimizer)


@dataclass
class _Content:
    """The state that a member serves.

    parts:   the shared objects, by name
    objects: the results of broadcast_object() before the first step, by name
    rounds:  the next round of each gradient lane
    steps:   the steps of each gradient lane so far; one of another release does not say them
    first:   the lane that begins first; None: any, because a round is open
    call:    the call that the member makes before that, if any
    refusal: why no worker can join
    ahead:   the most rounds that the joiner may make before it has the state; 0: the others wait
    spec:    that of these rounds
    """

    parts: dict[str, Any] = field(default_factory=dict)
    objects: dict[str, list[bytes]] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    first: str | None = None
    call: str | None = None
    refusal: str | None = None
    ahead: int = 0
    spec: RoundSpec | None = None


@dataclass
class _Index:
    """What a worker that comes back compares with its own. The digests of the packed content and of
    the large tensors in it come later.

    head:   the content without what is shared
    chains: by lane: its last round, and the chain of that
    large:  the number of large tensors
    """

    head: _Content
    chains: dict[str, tuple[int, int] | None]
    large: int


@dataclass
class _Kept:
    """What a worker that comes back need not fetch.

    packed: the content without its large tensors; None: it is others'
    large:  equal ones of this worker, by number
    """

    packed: bytes | None = None
    large: dict[int, torch.Tensor] = field(default_factory=dict)


@dataclass
class CatchUp:
    """Lets joiners catch up, if no more is shared than these.

    owners: the shared objects
    most:   as Ahead has it
    """

    owners: Sequence[Any]
    most: int


class Lane(Protocol):
    """The interface of a gradient lane that this module needs."""

    name: str

    @property
    def next_round(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def last_chain(self) -> tuple[int, int] | None: ...

    def has_unapplied(self) -> bool: ...

    def knows(self, parameter: torch.Tensor) -> bool: ...

    def parameters(self) -> Iterable[tuple[str, torch.Tensor]]: ...

    def sync_gradients(self) -> None: ...

    def why_not_ahead(self) -> str | None: ...

    def spec_ahead(self) -> RoundSpec | None: ...

    def ahead(self, spec: RoundSpec, most: int, others_call: Callable[[], bool]) -> Ahead: ...


class JobState:
    """Serves and loads the state for this process.

    lanes:     the lanes of the process, also future ones
    own_state: whether it joins with its own state
    """

    def __init__(self, worker: Worker, lanes: Sequence[Lane], own_state: bool) -> None:
        self._worker = worker
        self._lanes = lanes
        self._parts: list[Part] = []
        self.lazy = LazyTensors(worker, self._next_round)
        self.given = Given(worker)  # By the broadcasts at the start.
        # The results of broadcast_object() before the first step, by name.
        self._objects: dict[str, list[bytes]] = {}
        self._objects_taken: dict[str, int] = {}
        self._started = False  # Whether the first round has begun.
        self._stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._serving: list[tuple[str, torch.Tensor]] = []
        # Whether this worker numbers its steps as the others do.
        self.counts_steps = True
        self._joining = False  # Whether it has to load the state, and has not begun a round.
        self._lane, self._served = "", 0  # The lane and the version that it has last served.
        self._known, self._known_at = Known(), (0, 0)  # The members as of this generation.
        self._digests: Digests | None = None  # Those of what is served.
        self._comes_back = False  # Whether it was a member before, and has a state.
        self._own_state = own_state
        # Whether it has joined late with its own state, and has begun no round and no call since.
        self._brings_state = False
        self._catch_up: CatchUp | None = None
        self._room: Room | None = None  # That of the copies that are to be served.
        self._copies: Copies | None = None  # What is served while training goes on.
        self._ahead: Ahead | None = None  # The rounds of this joiner before it has the state.
        self._may_be_ahead = True
        self._catches_up = False  # Whether the results of these rounds are being applied.
        self._unverified = False  # Whether it has caught up, and was not compared yet.
        # Why what this worker has caught up with differs, so that it has to load the state again.
        self.differs: str | None = None
        self.join()

    @property
    def joins(self) -> bool:
        """Whether this worker has joined a job in progress, and has begun no round since."""
        return self._joining or self._brings_state

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
        if self._copies is not None:
            self._copies.close()
        self._drop_room()
        if self._digests is not None:
            self._digests.close()

    def join(self) -> None:
        """This worker has become a member. Before that it shares nothing."""
        self._look_for_state()
        if self._own_state and self._joining:
            self._joining = self.counts_steps = False
            self._brings_state = True

    def _look_for_state(self) -> None:
        place = self._worker.place()
        # A donor that has just joined, with the state that all others take, serves it at once.
        self._seen = (0, 0) if place.is_donor else place.donor_since
        self._sighted: tuple[int, int] | None = None  # Found in this round, but not yet served.
        self._joining = place.donor_since != (0, 0) and not place.is_donor
        self._in_line = False  # Whether it makes the calls that the others make.
        self._in_line_after_ahead = False  # Whether it was found to be, and has made rounds since.
        self._content: _Content | None = None
        self._expected: dict[str, int] = {}  # The first round of each lane.
        self._steps: dict[str, int] = {}  # And the steps before it.
        self._loaded = LoadedNumbers()

    # ---- what is shared

    def share(
        self,
        kind: str,
        key: Hashable,
        owner: Any,
        capture: Callable[[], Any],
        restore: Callable[[Any], None],
        broadcast: Callable[[], None],
        named: Tensors | None = None,
        timeout: float | None = None,
    ) -> None:
        """Registers an object for late joiners. A late joiner loads it from the others; all others
        broadcast it. `timeout`: how long a forward waits for lazy tensors."""
        part = next((part for part in self._parts if part.key == key), None)
        known = part is not None
        if part is None:
            count = sum(part.name.startswith(kind + " ") for part in self._parts)
            part = Part(key, f"{kind} {count}", owner, capture, restore, named)
        if named is not None:
            named.watch(part.name, timeout)
        if not self._load(part):
            broadcast()
        if not known:
            self._parts.append(part)

    def _next_round(self) -> int:
        """The number of the round of the first lane that the present forward is for."""
        if not self._lanes:
            return 0
        lane = self._lanes[0]
        if self._joining and self._content is not None:
            return self._content.rounds.get(lane.name, lane.next_round)
        return lane.next_round

    def modules(self) -> list[torch.nn.Module]:
        """The models that are shared."""
        return [part.owner for part in self._parts if isinstance(part.owner, torch.nn.Module)]

    def _load(self, part: Part) -> bool:
        if not self._joining:
            return False
        parts = self._fetch().parts
        if part.name in parts:
            part.restore(parts.pop(part.name))
            part.loaded = True
            if isinstance(part.owner, torch.optim.Optimizer):
                self._loaded.take(part.owner)
            if isinstance(part.owner, SharedValues):
                values = part.owner.shared().items()
                part.without_object = {k: v for k, v in values if not plain.has_state(v)}
        self._loaded.write()
        return part.loaded

    def keep_object(self, name: str, packed: bytes) -> None:
        if not self._started:
            self._objects.setdefault(name, []).append(packed)

    def take_object(self, name: str) -> bytes | None:
        """In a late joiner, returns the object that the others got at the start; else None."""
        if not self._joining and not self._brings_state:
            return None
        given = self._fetch().objects.get(name, [])
        taken = self._objects_taken.get(name, 0)
        if taken >= len(given):
            return None
        self._objects_taken[name] = taken + 1
        return given[taken]

    # ---- members

    def serve(self, *, first: str | None = None, call: str | None = None) -> None:
        """Serves the state if workers have joined since the last time. It must not change until
        stop()."""
        place = self._news()
        if place is not None:
            self._serve(place, first, call)

    def serve_in_round(self) -> bool:
        """Like serve(), during the wait for the outcome of a round. Returns whether to check for
        the outcome at once, and to call this again if there is none.

        A worker that the verdict of this round admits needs the state after it, and place() may
        show that verdict before wait() returns it. A worker that has joined while there is no
        outcome, because the job was paused, takes part in this round with the state before it.
        """
        place = self._news()
        if place is None or place.donor_since != self._sighted:
            self._sighted = None if place is None else place.donor_since
            return place is not None
        self._serve(place, None, None)
        return False

    def _news(self) -> Place | None:
        """The place of this worker, if workers have joined since it last served; else None."""
        if self._joining:
            return None
        place = self._worker.place()
        if place.donor_since != self._seen:
            return place
        if place.generation != self._known_at:
            self._note_members(place)
        return None

    def _note_members(self, place: Place) -> bool:
        """Returns whether one of those that have joined was a member before."""
        self._known_at = place.generation
        return self._known.note(map(self._worker.member_id, range(place.world_size)))

    def _serve(self, place: Place, first: str | None, call: str | None) -> None:
        self._seen = place.donor_since
        back = self._note_members(place)
        if not self._is_holder(place):
            return
        try:
            self._announce(*boundary_of(place), first, call, back)
        except Exception as error:  # Training continues.
            logger.error("cannot serve the state to joiners: %s", error)

    def _is_holder(self, place: Place) -> bool:
        first, *second = self._first_members(place)
        deputies = second if first == self._worker.donor_id() else [first]
        return place.is_member and (place.is_donor or self._worker.id in deputies)

    def _first_members(self, place: Place) -> list[str]:
        """The ids of the first two members. A member may have several ranks, one for each of its
        trainers."""
        first = self._worker.member_id(0)
        others = map(self._worker.member_id, range(1, place.world_size))
        return [first, *itertools.islice((other for other in others if other != first), 1)]

    def _announce(
        self, lane: str, version: int, first: str | None, call: str | None, back: bool
    ) -> None:
        """Serves the state of this boundary. `back`: a worker that may have it already comes back,
        so there are digests, too."""
        began = time.perf_counter()
        if self._copies is not None:  # Their memory is free when they are no longer served.
            self._drop_room()
            self._room = self._copies.room
        self.stop()
        me = self._worker.id
        if self._lane not in ("", lane):  # An earlier term: nobody asks for it.
            own = (f"{me}/content", f"{me}/index", f"{me}/digests")
            for name in (*own, _RECORD.name, _SUM.name, _IN_CALL.name):
                self._worker.stop_serving(self._lane, name)
        self._lane, self._served = lane, version
        refusal = self._why_nobody_can_join()
        # A worker that brings its own state may come nevertheless.
        content = _Content(refusal=refusal, objects=self._objects, call=call)
        try:
            if content.refusal is None:
                rounds = {lane.name: lane.next_round for lane in self._lanes}
                # A part may pickle what it captures.
                parts = {part.name: part.capture() for part in self._parts}
                steps = {lane.name: lane.steps for lane in self._lanes}
                spec = self._spec_ahead() if call is None else None
                most = 0 if spec is None or self._catch_up is None else self._catch_up.most
                content = _Content(
                    parts, self._objects, rounds, steps, first, call, ahead=most, spec=spec
                )
            packed, large = pack_apart(content)
        except Exception as error:
            refusal = f"The others cannot pickle their shared state: {error}. Share less."
            packed, large = pack_apart(_Content(refusal=refusal))

        def announce(i: int, memory: torch.Tensor) -> None:
            size = tensors.bytes_of(memory)
            spec = TensorSpec(f"{me}/{i}", _abi.U8, (size,))
            self._serving.append((spec.name, memory))
            self._worker.announce(lane, spec, version, memory.data_ptr(), size, in_place=True)
            if back and i == len(large) - 1:
                begin_digests()

        def begin_digests() -> None:
            contents: list[digests.Content] = [packed, *(memory for _, memory in self._serving)]
            self._digests = Digests(
                contents, lambda made: self._announce_bytes(f"{me}/digests", made, version)
            )

        record = {"worker": me, "bytes": len(packed)}
        if back:
            head = replace(content, parts={}, objects={})
            index = pack(_Index(head, self._last_chains(), len(large)))
            self._announce_bytes(f"{me}/index", index, version)
            record["index"] = len(index)
            if not large:
                begin_digests()
        if content.ahead > 0:
            # The joiner begins its rounds as soon as it has the content, and waits for the rest.
            self._copies = Copies(large, announce, self._room or Room(0))
            self._room = None
        else:
            self._drop_room()
            for i, memory in enumerate(large):
                announce(i, memory)
        self._announce_bytes(f"{me}/content", packed, version)
        # The record comes after the content, so that a joiner that gets it finds that.
        text = json.dumps(record).encode()
        self._announce_bytes(_RECORD.name, text.ljust(_RECORD.shape[0]), version)
        logger.info(
            "serves the state to joiners: %d bytes and %d large tensors, prepared in %.3f s",
            len(packed),
            len(large),
            time.perf_counter() - began,
        )

    def _spec_ahead(self) -> RoundSpec | None:
        """The spec of rounds that a joiner makes before it has the state; None: it makes none."""
        if self._catch_up is None or len(self._lanes) != 1:
            return None
        owners = {id(owner) for owner in self._catch_up.owners}
        if any(id(part.owner) not in owners for part in self._parts):
            return None
        return self._lanes[0].spec_ahead()

    def _last_chains(self) -> dict[str, tuple[int, int] | None]:
        return {lane.name: lane.last_chain for lane in self._lanes}

    def _announce_bytes(self, name: str, content: bytes, version: int) -> None:
        memory = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        spec = TensorSpec(name, _abi.U8, (len(content),))
        self._worker.announce(self._lane, spec, version, memory.data_ptr(), len(content))

    def _why_nobody_can_join(self) -> str | None:
        for lane in self._lanes:
            if lane.has_unapplied():
                return (
                    f"This worker has joined in the middle of a step: the others have results of "
                    f"lane {lane.name} that they have not applied yet. Start this worker again, "
                    "and make calls before backward(), not between it and step()."
                )
        given = {
            tensor.data_ptr()
            for part in self._parts
            if part.tensors is not None
            for _, tensor in part.tensors.list_all()
        }
        for lane in self._lanes:
            for name, parameter in lane.parameters():
                if parameter.data_ptr() not in given:
                    return (
                        f"The others train parameter {name}, which is not shared. Call "
                        "broadcast_parameters(model) before the first step."
                    )
        shared = {part.key for part in self._parts}
        kept = [value for part in self._parts for value in part.values()]
        for optimizer in self._stepped:
            kind = type(optimizer).__name__
            if optimizer.state and optimizer_key(optimizer) not in shared:
                return (
                    f"The others have an optimizer {kind} with state that is not shared. Call "
                    "broadcast_optimizer_state(optimizer) before the first step."
                )
            scheduled = hasattr(optimizer.step, "_wrapped_by_lr_sched")
            if scheduled and all(getattr(v, "optimizer", None) is not optimizer for v in kept):
                return (
                    f"The others have a scheduler of their {kind} that is not shared. Give it to "
                    "broadcast_state(scheduler=scheduler) before the first step."
                )
        return None

    def stop(self) -> None:
        """Stops serving, before the state changes. All joiners have loaded it by then."""
        if self._copies is not None:
            self._copies.close()
            self._copies = None
            self._worker.stop_serving(self._lane, _IN_CALL.name)
        if self._digests is not None:
            self._digests.close()
            self._digests = None
        for name, _ in self._serving:
            self._worker.stop_serving(self._lane, name)
        self._serving.clear()

    def before_step(self) -> None:
        self.lazy.drop_given()
        if self._copies is None:
            self.stop()
        else:
            self._copies.wait_copied()

    def after_outcome(self, info: RoundInfo) -> None:
        """Called with each outcome, before it is applied. When everyone has contributed, everyone
        has the state, and the same parameters."""
        self._make_room()
        if info.trainers != info.world_size or info.generation < self._seen:
            return
        self.given.drop()
        if self._copies is not None:
            self.stop()
            if len(self._lanes) == 1:
                self._announce_bytes(_SUM.name, self._sum(), info.round)
        if self._unverified:
            self._unverified = False
            self._compare(info.round)

    def _make_room(self) -> None:
        """If workers have joined with this outcome, makes room for what Copies will copy when the
        next round begins."""
        place = self._news() if self._catch_up is not None and self._copies is None else None
        if place is None or not self._is_holder(place):
            self._drop_room()
        elif self._room is None:
            try:
                self._room = room_for(each for part in self._parts for each in part.held())
            except (MemoryError, RuntimeError) as error:  # Training continues.
                logger.error("has no memory for a copy of the state: %s", error)

    def _drop_room(self) -> None:
        if self._room is not None:
            self._room.close()
            self._room = None

    def _sum(self) -> bytes:
        return sum_of(each for _, each in self._lanes[0].parameters()).to_bytes(8, "little")

    def _compare(self, number: int) -> None:
        lane, _ = boundary_of(self._worker.place())
        try:
            theirs = self._get(lane, _SUM, number, None, _PATIENCE_SECONDS)
        except Error as error:
            logger.warning("the parameters after catching up were not compared: %s", error)
            return
        if theirs.numpy().tobytes() != self._sum():
            self.differs = f"its parameters before the step of round {number} were others"

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepped.add(optimizer)
        if self._worker.id not in self._first_members(self._worker.place()):
            return  # It never serves, see _is_holder.
        for part in self._parts:
            if part.tensors is not None:
                part.tensors.copy_buffers(self._is_trained)

    def _is_trained(self, parameter: torch.Tensor) -> bool:
        return any(lane.knows(parameter) for lane in self._lanes)

    def before_call(self, name: str) -> None:
        """Serves the state before a call, because the step before the call is over. A late joiner
        checks that the others make the same call."""
        if self._brings_state:
            content = self._fetch()
            if content.call != name:
                raise Unsupported(
                    f"Worker {self._worker.id} has joined a job in progress with own_state=True, "
                    f"and the others do not make its call {name} now, so all would wait forever. "
                    "Before its first step, such a worker may use only broadcast_object(), which "
                    "returns what the others have got. Make no broadcast of the state in it: it "
                    "has the state."
                )
            self._brings_state, self._content = False, None
        if not self._joining or self._in_line:
            if self._copies is not None:
                self._announce_bytes(_IN_CALL.name, b"!", self._served)
            self.serve(call=name)
            return
        content = self._fetch()
        if content.call != name:
            raise Unsupported(
                f"Worker {self._worker.id} has joined a job in progress, and the others do not "
                f"make its call {name} now. Before the first step, use only broadcast_parameters, "
                "broadcast_optimizer_state, broadcast_state and broadcast_object."
            )
        self._in_line = True

    # ---- rounds

    def before_round(self, lane: str) -> tuple[int | None, int | None]:
        """Returns the expected number of the round that the worker begins, and of the steps before
        it, if the others have said them. Checks that a late joiner is at the same point as the
        others."""
        self._started = True
        if self._brings_state:
            self._brings_state, self._content = False, None
        if self._ahead is not None and not self._catches_up:
            raise FailedPrecondition(
                f"The State of the others has catch_up=, and that of worker {self._worker.id} has "
                "not. Give it the same function."
            )
        if self._joining and not self._in_line_after_ahead:
            self._check_level(lane)
            self._load_new_objects()
            self._check_numbers()
            self._in_line_after_ahead = self._ahead is not None
            assert self._content is not None
            self._expected = self._content.rounds
            self._steps = getattr(self._content, "steps", {})
            self.counts_steps = bool(self._steps) or not self._expected
        return self._expected.pop(lane, None), self._steps.pop(lane, None)

    def _check_level(self, lane: str) -> None:
        who = f"Worker {self._worker.id} has joined"
        content = self._content
        if content is None:
            raise FailedPrecondition(
                f"{who} a job in progress and has not loaded its state. Call "
                "broadcast_parameters(model) before the first step."
            )
        if content.call is not None and not self._in_line:
            raise Unsupported(
                f"{who} in the middle of a step: after optimizer.step() the others make the call "
                f"{content.call}, and this worker would not. Make it before backward()."
            )
        if content.first not in (None, lane):
            raise Unsupported(
                f"{who} between two optimizers: the next round is that of lane {content.first}, "
                f"but this worker begins with {lane}. Start it again."
            )
        if content.parts:
            raise FailedPrecondition(
                f"{who} and has not loaded these shared objects of the others: "
                f"{', '.join(sorted(content.parts))}. Broadcast the same before the first step."
            )

    def _load_new_objects(self) -> None:
        """Loads objects that the script has assigned to shared values after it had loaded these,
        such as a scheduler, as the others had done before."""
        for part in self._parts:
            for name, loaded in part.without_object.items():
                value = part.owner.shared().get(name)
                if value is not loaded and plain.has_state(value):
                    value.load_state_dict(loaded)
                    self._loaded.write()
            part.without_object = {}

    def _check_numbers(self) -> None:
        """Checks that the numbers of the optimizers are still those of the others, which have begun
        this round with them. The others may change them after a call, and this worker as well."""
        assert self._content is not None
        if self._content.call is not None:
            return
        lanes = (lane.parameters() for lane in self._lanes)
        names = {each: name for parameters in lanes for name, each in parameters}
        if (changes := self._loaded.changes(names)) is None:
            return
        here, there = changes
        raise Mismatch(
            f"Worker {self._worker.id} has joined a job in progress and changed an optimizer that "
            f"it had loaded: worker {self._worker.id} has {here}, and the others have {there}. "
            "Their steps would differ. A scheduler writes its first learning rate when it is "
            "created: give it to State() or broadcast_state()."
        )

    def after_begin(self, lane: str) -> None:
        """Reports that a round has begun, so this worker has the job's state."""
        if self._joining:
            self._joining = self._in_line_after_ahead = False
            self._content = None
            self._worker.busy("has loaded the state", 0)
        self.serve(first=lane)

    # ---- a worker that joins

    def rejoin(self) -> None:
        """Loads all that differs, after this worker was evicted and has become a member again."""
        self._comes_back = True
        self.stop()
        self._end_ahead()
        self._may_be_ahead = self._unverified = False
        self.differs = None
        self._look_for_state()
        for part in self._parts:
            part.loaded = False
            self._load(part)

    def let_catch_up(self, owners: Sequence[Any], most: int) -> None:
        """Joiners may catch up, by a function that the State of this worker has. Raises Unsupported
        if they never could."""
        why = self._why_nobody_catches_up(owners)
        if why is not None:
            raise Unsupported(
                f"State(catch_up=) lets joiners take part in rounds before they have the state, "
                f"but {why}. Leave catch_up= away: the others then wait while a joiner loads."
            )
        self._catch_up = CatchUp(owners, most)

    def _why_nobody_catches_up(self, owners: Sequence[Any]) -> str | None:
        if not self._lanes:
            return (
                "nothing reduces its gradients yet: make DistributedOptimizer() or "
                "DistributedDataParallel() before State"
            )
        if len(self._lanes) > 1:
            # Which rounds a step has in each, and in which order they begin, is known to a trainer
            # only: without it, the library could wait in one while the others wait for it in
            # another, and does not know with which rounds a step ends.
            return (
                f"this training has {len(self._lanes)} reductions of gradients, and only a "
                "trainer knows in which order their rounds begin. One DistributedDataParallel() "
                "reduces for several optimizers, if one backward comes before all of their steps"
            )
        if why := self._lanes[0].why_not_ahead():
            return why
        known = {id(owner) for owner in owners}
        for part in self._parts:
            if id(part.owner) not in known:
                return f"{part.name} is shared that State was not given"
        return None

    def catch_up(self, step: Callable[[], object]) -> str | None:
        """Applies the results of the rounds that were made while this worker has loaded the state.
        Returns why it has to load the state again, or None.

        step: all that the loop does after backward()
        """
        if self._ahead is None or self._content is None:
            return None
        (lane,) = self._lanes
        self._ahead.drop_before(self._content.rounds[lane.name])
        self._loaded.forget()
        self._catches_up, applied = True, 0
        try:
            while self._ahead.has_more():
                for _, parameter in lane.parameters():
                    parameter.grad = None
                lane.sync_gradients()
                step()
                applied += 1
        except Error as error:
            return str(error)
        finally:
            self._end_ahead()
        for _, parameter in lane.parameters():
            parameter.grad = None
        self._unverified = applied > 0
        logger.info("has caught up with the others: %d rounds", applied)
        return None

    def rounds_ahead(self) -> Ahead | None:
        """The rounds whose results are being applied."""
        return self._ahead if self._catches_up else None

    def _begin_ahead(self, content: _Content, lane: str, version: int) -> None:
        mine = self._lanes[0] if len(self._lanes) == 1 else None
        if self._may_be_ahead and not self._lanes:
            logger.warning(
                "worker %s loads the state before it has a DistributedOptimizer() or "
                "DistributedDataParallel(), so the others wait although their State has catch_up=. "
                "Make it before the first broadcast.",
                self._worker.id,
            )
        if (
            not self._may_be_ahead
            or self._ahead is not None
            or mine is None
            or mine.spec_ahead() is None
            or content.spec is None
            or content.rounds.keys() != {mine.name}
        ):
            return

        def others_call() -> bool:
            try:
                self._get(lane, _IN_CALL, version, None, _LOOK_SECONDS)
            except Error:
                return False
            return True

        self._ahead = mine.ahead(content.spec, content.ahead, others_call)

    def _end_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
        self._ahead, self._catches_up = None, False

    def _fetch(self) -> _Content:
        """Gets the whole state from one member, of one boundary; without the large tensors if this
        worker brings its own."""
        if self._content is not None:
            return self._content
        if not self._brings_state:
            self._worker.busy("loads the state of the others", _TIMEOUT_SECONDS)
        end = time.monotonic() + _TIMEOUT_SECONDS
        sources = itertools.cycle((self._worker.donor_id(), None))
        for source in sources:
            place = self._worker.place()
            if not place.is_member:
                raise Evicted(
                    f"Worker {self._worker.id} lost its place before it had loaded the state of "
                    "the others. Start it again."
                )
            self._seen = place.donor_since
            try:
                content = self._fetch_from(source, *boundary_of(place))
                break
            except (Unavailable, DeadlineExceeded, DataCorrupt) as error:
                if time.monotonic() >= end:
                    raise
                logger.info("still looks for the state of the others: %s", error)
        if content.refusal is not None and not self._brings_state:
            raise Unsupported(content.refusal)
        self._content = content
        # It may be the one that serves the next joiner.
        self._objects = {name: list(given) for name, given in content.objects.items()}
        self._started = self._started or any(getattr(content, "steps", {}).values())
        return content

    def _fetch_from(self, source: str | None, lane: str, version: int) -> _Content:
        record = self._get(lane, _RECORD, version, source, _RECORD_SECONDS)
        found = json.loads(record.numpy().tobytes())
        source, size = found["worker"], found["bytes"]
        kept = _Kept()
        if self._comes_back and "index" in found:
            kept = self._compare_all(source, lane, version, found["index"])
        packed = kept.packed
        if packed is None:
            content_spec = TensorSpec(f"{source}/content", _abi.U8, (size,))
            got = self._get(lane, content_spec, version, source, _patience(size))
            packed = got.numpy().tobytes()
        unpacker = Unpacker(io.BytesIO(packed))
        content = unpacker.load()
        assert isinstance(content, _Content)
        if self._brings_state:
            return content
        if content.ahead > 0:
            self._begin_ahead(content, lane, version)

        def get(index: int, tensor: torch.Tensor) -> None:
            size = tensors.bytes_of(tensor)
            spec = TensorSpec(f"{source}/{index}", _abi.U8, (size,))
            self._worker.get(lane, spec, version, source, _patience(size), tensor.data_ptr(), size)

        fill(unpacker.large, kept.large, get)
        return content

    def _compare_all(self, source: str, lane: str, version: int, size: int) -> _Kept:
        """Compares what this worker has with what the source serves."""
        try:
            spec = TensorSpec(f"{source}/index", _abi.U8, (size,))
            got = self._get(lane, spec, version, source, _patience(size))
            index = unpack(got.numpy().tobytes())
            # What is trained differs if the histories do.
            level = index.chains == self._last_chains()
            content = replace(index.head, parts=self._captured(level), objects=self._objects)
            packed, large = pack_apart(content)
            if not (level or large):
                return _Kept()
            mine = digests.of_all([packed, *large])
            total = sum(map(tensors.bytes_of, large))
            spec = TensorSpec(f"{source}/digests", _abi.U8, ((1 + index.large) * digests.BYTES,))
            theirs = self._await_digests(lane, spec, version, source, total)
        except Exception as error:
            # Nothing is lost: if the source is gone, the next request says so.
            logger.info("loads all of the state, because it was not compared: %s", error)
            return _Kept()
        kept = _Kept(
            packed if mine[0] == theirs[: digests.BYTES] else None,
            digests.by_number(zip(mine[1:], large, strict=True), theirs[digests.BYTES :]),
        )
        logger.info(
            "has %d of the %d large tensors of the others, and %s the rest of their state",
            len(kept.large),
            index.large,
            "loads" if kept.packed is None else "has",
        )
        return kept

    def _captured(self, level: bool) -> dict[str, Any]:
        """What this worker has of each part; unless it is `level`, only what is not trained."""
        if level:
            return {part.name: part.capture() for part in self._parts}
        return {
            part.name: {k: v for k, v in part.capture().items() if not self._is_trained(v)}
            for part in self._parts
            if part.tensors is not None
        }

    def _await_digests(
        self, lane: str, spec: TensorSpec, version: int, source: str, total: int
    ) -> bytes:
        """The source publishes them when it has read `total` bytes, or never if it serves another
        state by now."""
        end = time.monotonic() + _patience(total)
        while True:
            try:
                got = self._get(lane, spec, version, source, _RECORD_SECONDS)
                return got.numpy().tobytes()
            except DeadlineExceeded:
                is_served = boundary_of(self._worker.place()) == (lane, version)
                if not is_served or time.monotonic() >= end:
                    raise

    def _get(
        self, lane: str, spec: TensorSpec, version: int, source: str | None, timeout: float
    ) -> torch.Tensor:
        received = raw.empty_on_host(spec.shape, torch.uint8)
        self._worker.get(
            lane, spec, version, source, timeout, received.data_ptr(), received.numel()
        )
        return received


def _patience(size: int) -> float:
    return _PATIENCE_SECONDS + size / _SLOWEST_BYTES_PER_SECOND

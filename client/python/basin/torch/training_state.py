# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""State: everything that a training continues from, shared with the other workers, late joiners and
checkpoints.

Threads. One thread at a time: the one that runs backward and step.
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from basin.arguments import whole_number
from basin.errors import FailedPrecondition, InvalidArgument, Unsupported
from basin.torch import checkpoint, context, parts, plain, storage, streams
from basin.torch.checkpoint import Captured, Manifest
from basin.torch.collectives import broadcast_optimizer_state, broadcast_parameters, share_values
from basin.torch.samples import Elastic
from basin.torch.shared import SharedValues
from basin.torch.snapshots import Snapshots
from basin.worker import logger

_VALUES = "values"


class State(SharedValues):
    """All that a training continues from. Every worker makes it with the same arguments, and has
    that of rank 0 afterwards, bit for bit; a late joiner gets that of the others.

        state = basin.torch.State(model, optimizer, scheduler=scheduler)
        while state.step < steps and not state.leaving:
            ...  # backward(), optimizer.step(), scheduler.step()
            state.step += 1

    model:     a module: its parameters and all its buffers. DistributedDataParallel and compiled
               modules stand for the module in them
    optimizer: steps parameters of these modules only
    scheduler, scaler, sampler:
               objects with state_dict() and load_state_dict()
    ema:       a module, such as torch's AveragedModel, or an object as above
    rng:       whether each step begins with generators of torch, NumPy and random that are seeded
               from (seed, worker id, step), so that a restored run repeats; see below
    seed:      of the run, from 0; None: torch.initial_seed() of rank 0
    start:     False: the values are not shared before start(), for example to load a checkpoint
    catch_up:  a function of this State that does all that the loop does after backward(), up to
               the assignment to `step`. With it, the others do not wait for a late joiner: see
               docs/pytorch.md. None: they wait while it loads
    catch_up_rounds:
               the results that a joiner keeps while it loads; with so many, the others wait
    more:      other modules, optimizers and objects of these kinds, and plain data: numbers,
               strings, tensors, lists and dicts of these

    Each is an attribute of that name; `step` and `epoch` are 0 if they are not given. Values may be
    assigned, also under new names, and so may objects; a module or an optimizer may not. What is
    neither plain data nor has a state raises InvalidArgument with its name, as does an optimizer of
    a parameter that no module here has, or a scheduler of an optimizer that is not here.

    An assignment to `step` begins the next step: the generators are seeded, and a snapshot is begun
    if one is due. So assign it once in each step, when all the rest of the step is done. The steps
    that an elastic sampler of this state makes without the script are counted, too. The seed s
    of a step is the first 8 bytes, little-endian, of SHA-256 of "{seed}/{worker id}/{step}"; it is
    used in torch.manual_seed(s), numpy.random.seed([s % 2**32, s >> 32]) and random.seed(s).
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        scheduler: Any = None,
        scaler: Any = None,
        sampler: Any = None,
        ema: Any = None,
        rng: bool = True,
        seed: int | None = None,
        start: bool = True,
        catch_up: Callable[[Any], object] | None = None,
        catch_up_rounds: int = 8,
        **more: Any,
    ) -> None:
        named = {
            "model": model,
            "optimizer": optimizer,
            "scheduler": scheduler,
            "scaler": scaler,
            "sampler": sampler,
            "ema": ema,
        }
        values = {name: value for name, value in named.items() if value is not None}
        values |= {"step": 0, "epoch": 0, **more}
        values["seed"] = _seed(seed)
        for name in values:
            if name in dir(type(self)) or name.startswith("_") or name == checkpoint.MANIFEST:
                raise InvalidArgument(f"{name} cannot be the name of a value. Use another name.")
        hidden = vars(self)
        hidden["_rng"] = bool(rng)
        hidden["_worker"] = None  # The id of this worker, once the state is shared.
        hidden["_leave"] = None
        hidden["_snapshots"] = []
        if whole_number(catch_up_rounds) is None or catch_up_rounds < 1:
            raise InvalidArgument(
                f"catch_up_rounds cannot be {catch_up_rounds!r}. Use a number from 1 on."
            )
        _check_catch_up(catch_up, scaler)
        hidden["_catch_up"], hidden["_catch_up_rounds"] = catch_up, catch_up_rounds
        modules, optimizers = {}, {}
        for name, value in values.items():
            if isinstance(value, torch.nn.Module):
                modules[name] = parts.ModulePart(name, parts.unwrapped(value))
            elif isinstance(value, torch.optim.Optimizer):
                optimizers[name] = parts.OptimizerPart(name, value)
            else:
                parts.check_plain(name, value)
        hidden["_modules"], hidden["_optimizers"] = modules, optimizers
        parts.check_belongs(modules.values(), optimizers.values())
        hidden.update(values)
        self._check_schedulers()
        if start:
            self.start()

    def _check_schedulers(self) -> None:
        known = [each.optimizer for each in self._optimizers.values()]
        for name, value in self.shared().items():
            stepped = getattr(value, "optimizer", None)
            is_optimizer = isinstance(stepped, torch.optim.Optimizer)
            if is_optimizer and all(each is not stepped for each in known):
                raise InvalidArgument(
                    f"{name} schedules a {type(stepped).__name__} that State was not given. Give "
                    "it the optimizer, too."
                )

    # ---- attributes

    def shared(self) -> dict[str, Any]:
        fixed = (*self._modules, *self._optimizers)
        return {k: v for k, v in vars(self).items() if not k.startswith("_") and k not in fixed}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._modules or name in self._optimizers:
            raise FailedPrecondition(
                f"{name} cannot be replaced, because its parameters are registered. Load its "
                "values instead, or make another State."
            )
        if name.startswith("_") or hasattr(type(self), name) or name == checkpoint.MANIFEST:
            raise InvalidArgument(f"{name} cannot be the name of a value. Use another name.")
        parts.check_plain(name, value)
        vars(self)[name] = value
        if name == "step" and self._worker is not None:
            self._begin_step()

    @property
    def leaving(self) -> bool:
        """Whether this worker is to leave; see basin.torch.leaving()."""
        return self._leave is not None and bool(self._leave)

    # ---- steps

    def start(self) -> None:
        """Shares the values of rank 0 with all workers, and those of the others with a late joiner.
        All workers call it, once. Raises FailedPrecondition the second time, and the errors of the
        broadcasts."""
        if self._worker is not None:
            raise FailedPrecondition("This State is shared already. Call start() only once.")
        here = context.member("State.start()")
        modules = [module.module for module in self._modules.values()]
        if self._catch_up is not None:
            optimizers = [each.optimizer for each in self._optimizers.values()]
            here.state.let_catch_up([*modules, *optimizers, self], self._catch_up_rounds)
        for module in modules:
            broadcast_parameters(module)
        for optimizer in self._optimizers.values():
            broadcast_optimizer_state(optimizer.optimizer)
        share_values(self, "State.start()")
        vars(self)["_leave"] = here.leave
        vars(self)["_worker"] = here.client.worker_id
        for value in self.shared().values():
            if isinstance(value, Elastic):
                value.report_steps(self._count_step)
        self._seed_step()
        if self._catch_up is not None:
            why = here.state.catch_up(functools.partial(self._catch_up, self))
            if why is not None:
                self._load_again(why)

    def _count_step(self) -> None:
        """Counts a step that a sampler has made, if the script counts its own."""
        if self.step:
            self.step += 1

    def load_states(self, states: dict[str, Any]) -> None:
        super().load_states(states)
        self._seed_step()

    def _load_again(self, why: str) -> None:
        """Joins again, and the others wait while it loads."""
        logger.warning(
            "worker %s could not catch up with the others: %s. It joins again, and the others wait "
            "while it loads. The function catch_up= of State must do all that the loop does after "
            "backward(): clip, step the optimizer and the scheduler, and assign `step`. Give none "
            "if that is not possible.",
            self._worker,
            why,
        )
        here = context.current()
        here.client.worker.abandon()
        here.rejoin(here.timeout)

    def _begin_step(self) -> None:
        if self._catch_up is not None and context.is_started() and not context.is_helper():
            why = context.current().state.differs
            if why is not None:
                self._load_again(why)
        self._seed_step()
        for each in self._snapshots:
            each.step_begins()

    def _seed_step(self) -> None:
        if self._rng and self._worker is not None:
            streams.begin(self.seed, self._worker, self.step)

    # ---- checkpoints

    def parts(self) -> dict[str, parts.Part]:
        """The parts that a checkpoint has, by name."""
        objects = {
            name: parts.ObjectPart(name, self)
            for name, value in self.shared().items()
            if plain.has_state(value)
        }
        values = parts.ValuesPart(_VALUES, self)
        return {**self._modules, **self._optimizers, **objects, _VALUES: values}

    def manifest(self) -> Manifest:
        """What a checkpoint of now says about itself, without its parts."""
        made = Manifest(step=_plain_number(self.step), basin=_version())
        if context.is_started() and not context.is_helper():
            for lane in context.current().lanes:
                if lane.rounds.info is not None:
                    made.rounds[lane.name] = lane.rounds.info.round
                    made.chains[lane.name] = lane.rounds.info.chain
                    made.contract = lane.rounds.info.contract_version
        return made

    def _captured(self) -> dict[str, Captured]:
        return {
            name: Captured.of(name, part.kind, part.value()) for name, part in self.parts().items()
        }

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Writes all of the state to a file, which is there whole or not at all: a path, or a URL
        of fsspec. No other worker takes part, so one worker alone may call it, between step() and
        the next backward(). Raises OSError, and InvalidArgument with the name of a part that is not
        plain data."""
        manifest, captured = self.manifest(), self._captured()
        folder, name = storage.split(path)
        storage.folder_at(folder).write(
            name,
            self._worker or f"process-{os.getpid()}",
            lambda stream: checkpoint.write(stream, manifest, captured),
        )

    def load_checkpoint(self, path: str | os.PathLike[str]) -> Manifest:
        """Restores all of the state, or nothing if it raises an error, and returns what the
        checkpoint says about itself: format, contract, step, rounds, and the hashes of its parts.

        path: of a file that save_checkpoint() has written, or of a folder of snapshots, whose last
              one is taken

        Call it before start(), on rank 0 alone or on all workers; start() then gives it to all.
        Raises NotFound; DataCorrupt if a part is missing or damaged; VersionMismatch if the
        checkpoint is of another format or version of the arithmetic; Mismatch if it is of another
        model or has other parts; FailedPrecondition after start()."""
        self._check_loads("load_checkpoint()")
        folder, name = storage.split(path)
        if storage.folder_at(folder).has_folder(name):
            folder, name = Snapshots.last_in(path)
        with storage.folder_at(folder).open(name) as stream:
            manifest, contents = checkpoint.read(f"checkpoint {name}", stream)
        self._load(f"checkpoint {name}", manifest, contents)
        return manifest

    def state_dict(self) -> dict[str, Any]:
        """A copy of all of the state for torch.distributed.checkpoint or torch.save: the manifest
        as a string; modules and torch's optimizers as tensors by key, such as `0.weight` and
        `model.0.weight.exp_avg`; and the other parts as bytes. The values do not change when
        training goes on. An optimizer has zeros for what its first step will make, so that a reader
        finds the keys."""
        return checkpoint.to_dict(self.manifest(), parts.captured(self.parts()))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The inverse, with the errors of load_checkpoint(). It also takes a dict in which all
        parts are bytes, as earlier versions of Basin made them."""
        self._check_loads("load_state_dict()")
        self._load("state_dict", *checkpoint.from_dict("state_dict", state_dict))

    def _check_loads(self, call: str) -> None:
        if self._worker is not None:
            raise FailedPrecondition(
                f"{call} was used after start(), so the other workers would keep other values. "
                "Make State(..., start=False), load, and call start()."
            )

    def _load(self, where: str, manifest: Manifest, contents: Mapping[str, Any]) -> None:
        mine = self.parts()
        kinds = {name: part.kind for name, part in mine.items()}
        checkpoint.verify(where, manifest, contents, kinds)
        values = {
            name: checkpoint.value_of(where, name, contents[name])
            if isinstance(contents[name], bytes)
            else part.joined(where, manifest.parts[name]["tensors"], contents[name])
            for name, part in mine.items()
        }
        parts.apply_all(mine, where, values)

    # ---- snapshots

    def snapshots(
        self, folder: str | os.PathLike[str], every: int, keep: int | None = 3
    ) -> Snapshots:
        """From now on rank 0 writes a checkpoint into the folder at each `every`-th step, and no
        trainer waits for it: the state is copied while the next forward and backward run, and
        written by another thread.

        folder: a path, or a URL of fsspec such as s3://bucket/run
        every:  in steps, at least 1
        keep:   how many snapshots the folder keeps; None: all

        There is memory for one copy of the state. A snapshot that is due while one is written is
        skipped, and counted. A full disk or another error is a warning. Raises InvalidArgument, and
        Unsupported for a URL without fsspec."""
        for argument, number in (("every", every), ("keep", keep)):
            if not (number is None and argument == "keep") and not whole_number(number):
                raise InvalidArgument(f"{argument} cannot be {number!r}. Use a number from 1 on.")
        made = Snapshots(
            self, folder, every, keep, lambda: self._leave is not None and self._leave.over
        )
        self._snapshots.append(made)
        return made


def _check_catch_up(catch_up: Any, scaler: Any) -> None:
    if catch_up is None:
        return
    if not callable(catch_up):
        raise InvalidArgument(
            f"catch_up cannot be {catch_up!r}. Use a function of the State that does all that the "
            "loop does after backward()."
        )
    try:
        inspect.signature(catch_up).bind(None)
    except TypeError as error:
        raise InvalidArgument(
            f"catch_up is called with the State alone, and {catch_up!r} does not take that: "
            f"{error}. Use a function of one argument."
        ) from error
    except ValueError:
        pass  # It does not say what it takes.
    if scaler is not None and getattr(scaler, "is_enabled", lambda: False)():
        raise Unsupported(
            "State(catch_up=) lets joiners take part in rounds before they have the state, but "
            "they do not know the scale of the scaler then. Leave catch_up= away: the others then "
            "wait while a joiner loads."
        )


def _seed(seed: int | None) -> int:
    number = whole_number(torch.initial_seed() if seed is None else seed)
    if number is None:
        raise InvalidArgument(f"seed cannot be {seed!r}. Use a whole number from 0 on.")
    return number


def _plain_number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _version() -> str:
    from basin import __version__

    return __version__

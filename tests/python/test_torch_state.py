# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.torch.State: one state for all workers, late joiners, checkpoints and snapshots.

Usage: test_torch_state.py BASIND LIBBASIN
"""

import contextlib
import errno
import functools
import io
import json
import os
import random
import re
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from jobs import ROOT, hear, logged, say
from test_state import LateJoinersTest, hash_of
from torch_jobs import WORKERS, TorchTest, expect, main, session

import torch  # isort: skip - torch_jobs ends the program when there is none
from torch import nn  # isort: skip

NEVER = 10**6


class Sampler:
    """The state of a sampler is plain data, and one of another length is refused."""

    def __init__(self, length: int = 100) -> None:
        self.length, self.taken = length, 0

    def state_dict(self) -> dict[str, Any]:
        return {"length": self.length, "taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.taken = state["taken"]
        if state["length"] != self.length:
            raise ValueError(f"length {state['length']} is not {self.length}")


class Scale(Sampler):
    def get_scale(self) -> float:
        return 1.0


class Training:
    """Everything that a training has, with other values in each process."""

    def __init__(self, bt: Any, *, width: int = 64, reduced: bool = True, **options: Any) -> None:
        torch.manual_seed(os.getpid())
        self.net = nn.Sequential(
            *(nn.Linear(5, width), nn.BatchNorm1d(width), nn.Dropout(0.3)),
            *(nn.ReLU(), nn.Linear(width, 300), nn.Linear(300, 3)),
        ).double()
        self.optimizer: Any = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        if reduced:
            bt.DistributedOptimizer(self.optimizer, self.net.named_parameters())
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 5], 0.5)
        self.ema = torch.optim.swa_utils.AveragedModel(self.net)
        self.state = bt.State(
            self.net,
            self.optimizer,
            scheduler=self.scheduler,
            scaler=torch.amp.GradScaler("cpu", init_scale=8.0),
            sampler=Sampler(),
            ema=self.ema,
            best=np.float32(os.getpid() % 1000),
            end=NEVER,
            seed=7,
            **options,
        )

    def describe(self, *, buffers: bool = True) -> Any:
        moments = self.optimizer.state_dict()["state"].values()
        return (
            hash_of(self.net.parameters()),
            hash_of(self.ema.parameters()),
            hash_of(value for each in moments for value in each.values()),
            self.optimizer.param_groups[0]["lr"],
            self.scheduler.last_epoch,
            self.state.scaler.get_scale(),
            self.state.sampler.taken,
            float(self.state.best),
            self.state.step,
            self.state.epoch,
            hash_of(self.net.buffers()) if buffers else None,
        )

    def step(self, rank: int) -> None:
        """Its batch comes from the streams of the step, and so does its dropout."""
        self.optimizer.zero_grad()
        batch = torch.randn(4, 5, dtype=torch.float64)
        noise = float(np.random.rand()) + random.random() + rank
        (self.net(batch).square().mean() * noise).backward()
        self.optimizer.step()
        self.scheduler.step()
        self.ema.update_parameters(self.net)
        self.state.sampler.taken += 4
        self.state.best = np.float32(self.state.step)
        self.state.epoch = self.state.step // 3
        self.state.step += 1


# ---- workers


def starts_equal(rank: int) -> Any:
    with session() as bt:
        training = Training(bt)
        began = training.describe()
        streams = [float(torch.rand(())), float(np.random.rand()), random.random()]
        return began, type(training.state.best).__name__, streams


def trains_saves_and_resumes(rank: int, folder: str) -> Any:
    """Trains 8 steps, and saves after 4. Then a new job resumes there; only rank 0 has the file."""
    path = f"{folder}/rank-{rank}/last"
    with session() as bt:
        training = Training(bt)
        for _ in range(4):
            training.step(rank)
        if rank == 0:
            training.state.save_checkpoint(path)  # The others do not take part.
        bt.broadcast_buffers(training.net)
        saved = training.describe()
        for _ in range(4):
            training.step(rank)
        ended = training.describe(buffers=rank == 0)
    with session() as bt:
        training = Training(bt, start=False)
        if rank == 0:
            manifest = training.state.load_checkpoint(path)
            assert manifest.step == 4 and set(manifest.rounds.values()) == {4}, manifest
            assert all(manifest.chains.values()), manifest
        training.state.start()
        resumed = training.describe()
        assert "after start()" in expect("FailedPrecondition", training.state.load_checkpoint, path)
        for _ in range(4):
            training.step(rank)
        return saved, resumed, ended, training.describe(buffers=rank == 0)


def joins_late(rank: int, folder: str) -> Any:
    go = Path(folder) / "go"
    if rank == 2:
        hear(go)
    with session() as bt:
        training = Training(bt)
        began = training.state.step
        history = {began: training.describe(buffers=False)}
        while training.state.step < training.state.end:
            if training.state.step == 3 and rank == 0:
                say(go)
            training.step(rank)
            if bt.size() == 3 and training.state.end == NEVER:
                training.state.end = training.state.step + 4
            history[training.state.step] = training.describe(buffers=False)
        return began, history


def takes_snapshots(rank: int, folder: str) -> Any:
    """Rank 0 writes; the first snapshot is not over before two more are due."""
    from basin.torch import storage

    written, write = threading.Event(), storage._Local.write

    def late_write(self: Any, *arguments: Any) -> None:
        written.wait()
        write(self, *arguments)

    with session() as bt:
        training = Training(bt, width=2000)
        snapshots = training.state.snapshots(folder, every=2, keep=2)
        history = {}
        with mock.patch.object(storage._Local, "write", late_write):
            for _ in range(7):
                training.step(rank)
                history[training.state.step] = training.describe()
            written.set()
            snapshots.wait()
        counts = [snapshots.written, snapshots.skipped]
        for _ in range(5):
            training.step(rank)
            history[training.state.step] = training.describe()
            snapshots.wait()
        return history, counts, snapshots.written, snapshots.failed, snapshots.last


class StateTest(TorchTest):
    def test_criterion_2_3_all_begin_with_the_state_of_rank_0_bit_for_bit(self) -> None:
        outcomes = self.run_job(starts_equal)
        self.assertEqual(1, len({began for began, _, _ in outcomes}))
        self.assertEqual({"float32"}, {kind for _, kind, _ in outcomes}, "a scalar of NumPy")
        self.assertEqual(WORKERS, len({streams[0] for _, _, streams in outcomes}), "own streams")

    def test_criterion_2_4_rank_0_alone_restores_and_the_run_repeats(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = self.run_job(trains_saves_and_resumes, folder)
        for saved, resumed, ended, repeated in outcomes:
            self.assertEqual(outcomes[0][0], saved)
            self.assertEqual(saved, resumed)
            self.assertEqual(ended, repeated)

    def test_streams_are_a_documented_function_of_seed_worker_and_step(self) -> None:
        def three() -> list[float]:
            return [float(torch.rand(())), float(np.random.rand()), random.random()]

        from basin.torch import streams

        (_, _, got), *_ = self.run_job(starts_equal)
        streams.begin(7, "w0", 0)
        self.assertEqual(got, three())
        derived = streams.seed_of(7, "w0", 0)
        torch.manual_seed(derived)
        np.random.seed([derived % 2**32, derived >> 32])
        random.seed(derived)
        self.assertEqual(got, three())
        seeds = {streams.seed_of(*each) for each in ((7, "w0", 0), (8, "w0", 0), (7, "w1", 0))}
        self.assertEqual(3, len(seeds - {streams.seed_of(7, "w0", 1)}))


class LateJoiners(LateJoinersTest):
    def test_criterion_2_6_a_late_joiner_has_the_whole_state_of_the_others(self) -> None:
        outcomes = self.run_job(joins_late, 3, start=2, least=2, most=3)
        began, history = outcomes[2]
        self.assertGreaterEqual(began, 3)
        for step, described in history.items():
            for _, other in outcomes[:2]:
                self.assertEqual(other[step], described, f"step {step}")


class AloneTest(unittest.TestCase):
    """One process without a job."""

    @classmethod
    def setUpClass(cls) -> None:
        os.environ["BASIN_LIBRARY"] = sys.argv[2]


class Refusals(AloneTest):
    def assert_refused(self, words: str, make: Callable[[], Any]) -> None:
        self.assertIn(words, expect("InvalidArgument", make))

    def test_what_cannot_be_in_the_state_is_refused_by_name(self) -> None:
        import basin.torch as bt

        net, other = nn.Linear(2, 2), nn.Linear(2, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        make: Any = functools.partial(bt.State, start=False)
        for words, given, more in (
            ("loader is a torch.utils.data.dataloader.DataLoader", (), {"loader": _loader()}),
            ("callback is a builtins.function", (), {"callback": lambda: None}),
            ("many['a'][1] is a threading.Event", (), {"many": {"a": [1, threading.Event()]}}),
            ("snapshots cannot be the name", (), {"snapshots": 1}),
            ("Parameter 0 of group 0 of optimizer, of shape (2, 2)", (other, optimizer), {}),
            ("scheduler schedules a SGD", (net,), {"scheduler": scheduler}),
            ("seed cannot be -1", (), {"seed": -1}),
        ):
            with self.subTest(words):
                self.assert_refused(words, functools.partial(make, *given, **more))
        state = make(net, optimizer)
        self.assert_refused("later is a _thread.lock", lambda: setattr(state, "later", _lock()))
        self.assert_refused("later is a Linear", lambda: setattr(state, "later", other))
        said = expect("FailedPrecondition", setattr, state, "model", other)
        self.assertIn("model cannot be replaced", said)
        with self.assertRaisesRegex(NotImplementedError, "Tensor sparse is sparse"):
            make(sparse=torch.eye(2).to_sparse())

    def test_what_a_step_left_in_an_optimizer_is_checked_when_it_is_saved(self) -> None:
        import basin.torch as bt

        net = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        state = bt.State(net, optimizer, start=False)
        optimizer.param_groups[0]["hook"] = print
        self.assertIn(
            "optimizer['param_groups'][0]['hook'] is a builtins.builtin",
            expect("InvalidArgument", state.state_dict),
        )


def _loader() -> Any:
    return torch.utils.data.DataLoader([1, 2])  # type: ignore[arg-type]


def _lock() -> Any:
    return threading.Lock()


class Checkpoints(AloneTest):
    def setUp(self) -> None:
        import basin.torch

        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = f"{self.folder}/last"
        self.bt: Any = basin.torch
        self.trained = self.make()
        for _ in range(3):
            self.trained.step(0)
        self.trained.state.save_checkpoint(self.path)
        self.expected = self.trained.describe()

    def make(self, **options: Any) -> Training:
        return Training(self.bt, reduced=False, start=False, **options)

    def assert_refused(self, kind: str, words: str, load: Any, **options: Any) -> None:
        """Nothing is applied."""
        training = self.make(**options)
        training.state.step = 77
        before = training.describe()
        self.assertIn(words, expect(kind, load, training.state))
        self.assertEqual(before, training.describe())

    def load(self, state: Any) -> Any:
        return state.load_checkpoint(self.path)

    def test_everything_comes_back_bit_for_bit(self) -> None:
        training = self.make()
        manifest = self.load(training.state)
        self.assertEqual(self.expected, training.describe())
        self.assertEqual("float32", type(training.state.best).__name__)
        self.assertEqual((3, 1, 1), (manifest.step, manifest.format, manifest.contract))
        names = ["ema", "model", "optimizer", "sampler", "scaler", "scheduler", "values"]
        self.assertEqual(names, sorted(manifest.parts))

    def test_every_dtype_and_scalar(self) -> None:
        nan = torch.tensor([float("nan"), -0.0, float("inf")]).to(torch.bfloat16)
        values = {
            "nan": nan,
            "large": torch.arange(100_000, dtype=torch.int64).view(2, -1).t(),
            "empty": torch.empty(0, 3),
            "none": torch.tensor(True),
            "numbers": [1, 2.5, 1j, "x", b"y", None, (True,), {3}],
            "arrays": {"a": np.arange(3), 1: np.int8(-1), "b": np.zeros((2, 0))},
            "odd": [torch.float16, torch.Size([1, 2]), torch.device("cpu")],
        }
        state, other = (self.bt.State(start=False, **values) for _ in range(2))
        other.load_state_dict(state.state_dict())
        self.assertEqual(hash_of([nan.view(torch.int16)]), hash_of([other.nan.view(torch.int16)]))
        self.assertTrue(torch.equal(values["large"], other.large))  # type: ignore[arg-type]
        self.assertEqual((0, 3), tuple(other.empty.shape))
        self.assertEqual(values["numbers"], other.numbers)
        self.assertEqual(values["odd"], other.odd)
        self.assertEqual([0, 1, 2], other.arrays["a"].tolist())
        self.assertEqual(np.int8, type(other.arrays[1]))

    def test_criterion_3_7_a_damaged_file_is_refused(self) -> None:
        whole = Path(self.path).read_bytes()
        # Bytes that are no text follow.
        text = whole[whole.rindex(b'{"step"') :].decode("latin-1")
        manifest, _ = json.JSONDecoder().raw_decode(text)
        at = len("basin checkpoint\n")
        for name, part in manifest["parts"].items():
            with self.subTest(name):
                middle = at + part["bytes"] // 2
                damaged = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
                Path(self.path).write_bytes(damaged)
                self.assert_refused("DataCorrupt", f"Part {name} of", self.load)
            at += part["bytes"]
        for words, damaged in (
            ("beginning of checkpoint last", b"x" + whole[1:]),
            ("beginning of checkpoint last", b""),
            ("end of checkpoint last is missing", whole[:-1]),
            ("end of checkpoint last is missing", whole[: len(whole) // 2]),
            ("manifest of checkpoint last is damaged", whole.replace(b'{"step"', b'{"stop"')),
        ):
            with self.subTest(words):
                Path(self.path).write_bytes(damaged)
                self.assert_refused("DataCorrupt", words, self.load)

    def test_criterion_3_7_a_part_of_the_state_is_refused(self) -> None:
        given = self.trained.state.state_dict()
        for name in given:
            with self.subTest(name):
                rest = {key: value for key, value in given.items() if key != name}
                words = "There is no manifest" if name == "manifest" else f"Part {name} of"
                self.assert_refused(
                    "DataCorrupt", words, lambda s, rest=rest: s.load_state_dict(rest)
                )
        more = self.bt.State(self.trained.net, seed=1, start=False)
        said = expect("Mismatch", more.load_state_dict, given)
        self.assertIn("Only state_dict has the part ema, ", said)
        said = expect("Mismatch", self.make().state.load_state_dict, more.state_dict())
        self.assertIn("Only this State has the part ema, ", said)

    def test_criterion_3_7_another_format_or_contract_is_refused(self) -> None:
        given = self.trained.state.state_dict()
        for field, words in (
            ("format", "The format of state_dict is 9"),
            ("contract", "version of the arithmetic of state_dict is 9"),
        ):
            with self.subTest(field):
                manifest = json.dumps({**json.loads(given["manifest"]), field: 9})
                other = {**given, "manifest": manifest}
                self.assert_refused(
                    "VersionMismatch", words, lambda s, other=other: s.load_state_dict(other)
                )

    def test_criterion_3_7_the_state_of_another_model_is_refused(self) -> None:
        self.assert_refused("Mismatch", "Tensor 0.weight of model is", self.load, width=65)
        for change, words in (
            (lambda t: setattr(t.state, "sampler", Sampler(99)), "length 100 is not 99"),
            (lambda t: setattr(t.state, "other", 1), "value other is only here"),
            (lambda t: t.optimizer.add_param_group({"params": []}), "groups of optimizer have"),
            (
                lambda t: t.net.append(nn.Linear(1, 1).double()),
                "Tensor 6.bias of model is only here",
            ),
            (lambda t: setattr(t.state, "scaler", Scale()), "Part scaler is a Scale here"),
        ):
            with self.subTest(words):
                training = self.make()
                change(training)
                before = training.describe()
                self.assertIn(words, expect("Mismatch", self.load, training.state))
                self.assertEqual(before, training.describe())

    def test_a_file_cannot_name_code(self) -> None:
        import pickle

        from basin.torch.checkpoint import Captured, Manifest, to_dict

        packed = pickle.dumps({"step": os.getcwd}, protocol=5)
        given = to_dict(Manifest(), {"values": Captured("values", packed, [])})
        state = self.bt.State(start=False)
        said = expect("DataCorrupt", state.load_state_dict, given)
        self.assertIn("posix.getcwd, which is not plain data", said)

    def test_no_file(self) -> None:
        for path in (f"{self.folder}/none", f"{self.folder}/no/folder", "memory://none/none"):
            self.assertIn("no file", expect("NotFound", self.make().state.load_checkpoint, path))
        os.mkdir(f"{self.folder}/empty")
        said = expect("NotFound", self.make().state.load_checkpoint, f"{self.folder}/empty")
        self.assertIn("no snapshot", said)

    def test_a_write_that_fails_leaves_the_file_that_was_there(self) -> None:
        before = Path(self.path).read_bytes()
        full = OSError(errno.ENOSPC, "No space left on device")
        with mock.patch("os.fsync", side_effect=full), self.assertRaises(OSError):
            self.trained.state.save_checkpoint(self.path)
        self.assertEqual(before, Path(self.path).read_bytes())
        self.assertEqual(["last"], os.listdir(self.folder))

    def test_a_folder_that_is_made_is_told(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as told:
            for _ in range(2):
                self.trained.state.save_checkpoint(f"{self.folder}/new/last")
        self.assertEqual(
            f"basin: made the folder {self.folder}/new, which was not there\n", told.getvalue()
        )

    def test_a_url(self) -> None:
        self.trained.state.save_checkpoint("memory://run/last")
        training = self.make()
        training.state.load_checkpoint("memory://run/last")
        self.assertEqual(self.expected, training.describe())

    def test_torch_distributed_checkpoint(self) -> None:
        from torch.distributed import checkpoint

        self.save_dcp()
        training = self.make()  # Its optimizer has no moments yet.
        checkpoint.load({"app": training.state}, checkpoint_id=f"{self.folder}/dcp", no_dist=True)
        self.assertEqual(self.expected, training.describe())
        for each in (training, self.trained):
            torch.manual_seed(1)
            np.random.seed(1)
            random.seed(1)
            each.step(0)
        self.assertEqual(self.trained.describe(), training.describe(), "it trains on")
        # A reader that drops what the checkpoint has not is found as well.
        self.assert_refused(
            "Mismatch", "value more is only here", lambda s: _load_with_more(s, self.folder)
        )

    def save_dcp(self) -> None:
        from torch.distributed import checkpoint

        self.enterContext(contextlib.redirect_stderr(None))
        writer = checkpoint.FileSystemWriter(f"{self.folder}/dcp")
        checkpoint.save({"app": self.trained.state}, storage_writer=writer, no_dist=True)

    def test_torch_distributed_checkpoint_has_tensors_by_key(self) -> None:
        from torch.distributed import checkpoint

        self.save_dcp()
        reader = checkpoint.FileSystemReader(f"{self.folder}/dcp")
        shown = reader.read_metadata().state_dict_metadata
        net = self.trained.net
        (weight,) = (p for n, p in net.named_parameters() if n == "4.weight")
        for key in ("model.4.weight", "optimizer.model.4.weight.exp_avg", "ema.module.4.weight"):
            found = shown[f"app.{key}"]
            assert isinstance(found, checkpoint.TensorStorageMetadata), key
            self.assertEqual((weight.shape, weight.dtype), (found.size, found.properties.dtype))
        # Without Basin: the model alone, and one tensor.
        other = Training(self.bt, reduced=False, start=False).net
        mine = {"app": {"model": dict(other.state_dict())}}
        checkpoint.load(mine, storage_reader=reader, no_dist=True)
        self.assertEqual(hash_of(net.state_dict().values()), hash_of(other.state_dict().values()))
        moment = torch.empty(3, 300, dtype=torch.float64)
        one = {"app": {"optimizer": {"model.5.weight.exp_avg": moment}}}
        checkpoint.load(one, storage_reader=reader, no_dist=True)
        state = self.trained.optimizer.state[net[5].weight]
        self.assertTrue(torch.equal(state["exp_avg"], moment))

    def test_a_dict_whose_parts_are_bytes_is_loaded_as_well(self) -> None:
        from basin.torch.checkpoint import to_dict
        from torch.distributed import checkpoint

        given = to_dict(self.trained.state.manifest(), self.trained.state._captured())
        self.assertTrue(all(isinstance(given[name], bytes) for name in ("model", "optimizer")))
        self.assertEqual(1, json.loads(given["manifest"])["format"])
        self.enterContext(contextlib.redirect_stderr(None))
        checkpoint.save({"app": given}, checkpoint_id=f"{self.folder}/dcp", no_dist=True)
        # The way in the documentation.
        names = ["manifest", *self.trained.state.parts()]
        app: dict[str, Any] = dict.fromkeys(names, b"")
        checkpoint.load({"app": app}, checkpoint_id=f"{self.folder}/dcp", no_dist=True)
        for each in (given, app):
            training = self.make()
            training.state.load_state_dict(each)
            self.assertEqual(self.expected, training.describe())

    def test_a_dict_is_a_copy_and_stays_the_callers(self) -> None:
        given = self.trained.state.state_dict()
        self.trained.step(0)
        training = self.make()
        training.state.load_state_dict(given)
        self.assertEqual(self.expected, training.describe())
        training.step(0)
        again = self.make()
        again.state.load_state_dict(given)
        self.assertEqual(self.expected, again.describe())

    def test_criterion_3_7_a_tensor_that_is_missing_changed_or_converted_is_refused(self) -> None:
        given = self.trained.state.state_dict()
        for part, key in (("model", "0.weight"), ("optimizer", "model.0.weight.exp_avg")):
            content = given[part]
            changed = content[key].clone()
            changed[0, 0] += 1
            for kind, words, tensor in (
                ("DataCorrupt", f"Tensor {key} of part {part} is missing in state_dict", None),
                ("DataCorrupt", f"Part {part} of state_dict is damaged", changed),
                ("Mismatch", "is torch.float32 of shape", content[key].float()),
            ):
                with self.subTest(words):
                    other = {**given, part: {**content, key: tensor}}
                    self.assert_refused(
                        kind, words, lambda s, other=other: s.load_state_dict(other)
                    )
        rest = given["optimizer"]["rest"]
        other = {**given, "optimizer": {**given["optimizer"], "rest": rest[:-1] + b"?"}}
        words = "Part optimizer of state_dict is damaged"
        self.assert_refused("DataCorrupt", words, lambda s: s.load_state_dict(other))

    def test_an_optimizer_has_the_keys_of_its_state_before_its_first_step(self) -> None:
        adam: Any = torch.optim.Adam
        for kind, options in (
            (torch.optim.SGD, {"momentum": 0.9}),
            (adam, {"amsgrad": True}),
            (adam, {"fused": True}),
            (torch.optim.AdamW, {"foreach": True}),
            (torch.optim.RMSprop, {"centered": True, "momentum": 0.5}),
            (torch.optim.Adagrad, {}),
            (torch.optim.ASGD, {}),
            (torch.optim.Adafactor, {}),
            (torch.optim.SGD, {"lr": 0.1}),
        ):
            with self.subTest(kind.__name__, **options):
                torch.manual_seed(3)
                states = []
                for _ in range(2):
                    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
                    optimizer: Any = kind(net.parameters(), **options)
                    states.append(self.bt.State(net, optimizer, start=False))
                before = states[0].state_dict()["optimizer"].keys()
                for parameter in states[0].model[0].parameters():
                    parameter.grad = torch.ones_like(parameter)
                states[0].optimizer.step()  # The second layer has no state.
                given = states[0].state_dict()
                self.assertEqual(before, given["optimizer"].keys())
                states[1].load_state_dict(given)
                mine, theirs = (s.optimizer.state_dict()["state"] for s in states)
                self.assertEqual(list(mine), list(theirs))
                for number, values in mine.items():
                    self.assertEqual(
                        {k: hash_of([v]) for k, v in values.items()},
                        {k: hash_of([v]) for k, v in theirs[number].items()},
                    )

    def test_an_optimizer_that_is_not_of_torch_is_bytes(self) -> None:
        class Mine(torch.optim.SGD):
            def step(self, closure: Any = None) -> Any:
                raise AssertionError("nobody has asked for it")

        net = nn.Linear(2, 2)
        states = [
            self.bt.State(net, Mine(net.parameters(), momentum=0.9), start=False) for _ in range(2)
        ]
        states[0].optimizer.state[net.weight]["momentum_buffer"] = torch.ones(2, 2)
        given = states[0].state_dict()
        self.assertIsInstance(given["optimizer"], bytes)
        states[1].load_state_dict(given)
        self.assertEqual(4.0, float(states[1].optimizer.state[net.weight]["momentum_buffer"].sum()))

    def test_the_version_of_the_arithmetic_is_that_of_the_aggregator(self) -> None:
        from basin.contract import CONTRACT_VERSION

        header = (ROOT / "protocol/version.h").read_text()
        found = re.search(r"kContractVersion = (\d+);", header)
        assert found is not None
        self.assertEqual(int(found[1]), CONTRACT_VERSION)


def _load_with_more(state: Any, folder: str) -> None:
    from torch.distributed import checkpoint

    state.more = 1
    try:
        checkpoint.load({"app": state}, checkpoint_id=f"{folder}/dcp")
    finally:
        del state.more


class SnapshotsTest(TorchTest):
    def test_they_hold_the_state_of_their_step_while_the_training_goes_on(self) -> None:
        import basin.torch

        with tempfile.TemporaryDirectory() as folder:
            outcomes = self.run_job(takes_snapshots, folder)
            history, counts, written, failed, last = outcomes[0]
            # The first one was written while those of steps 4 and 6 were due.
            self.assertEqual([1, 2], counts)
            self.assertEqual((4, 0, "step-000000000012.basin"), (written, failed, last))
            names = ["step-000000000010.basin", "step-000000000012.basin"]
            self.assertEqual(names, sorted(os.listdir(folder)))
            for path, step in ((folder, 12), (f"{folder}/{names[0]}", 10)):
                training = Training(basin.torch, width=2000, reduced=False, start=False)
                self.assertEqual(step, training.state.load_checkpoint(path).step)
                self.assertEqual(history[step], training.describe())
            for _, counts, written, _, _ in outcomes[1:]:
                self.assertEqual(([0, 0], 0), (counts, written), "only rank 0 writes")


class SnapshotErrors(TorchTest):
    def test_an_error_is_a_warning_and_training_goes_on(self) -> None:
        for case in ("full", "torn", "odd"):
            with self.subTest(case), tempfile.TemporaryDirectory() as folder:
                ((warned, step, written, failed),) = self.jobs.run(snapshots_fail, 1, folder, case)
                self.assertEqual((6, 2, 1), (step, written, failed), warned)
                self.assertEqual(1, len(warned), warned)
                self.assertIn("the snapshot of step 2 was not written", warned[0])
                wanted = {
                    "full": "No space left",
                    "torn": "written to before",
                    "odd": "['odd'] is a",
                }
                self.assertIn(wanted[case], warned[0])
                self.assertEqual(2, len(os.listdir(folder)))


def snapshots_fail(rank: int, folder: str, case: str) -> Any:
    """That of step 2 fails."""
    import logging

    from basin.torch import snapshots as module

    with session() as bt, logged(logging.WARNING) as lines, contextlib.ExitStack() as kept:
        training = Training(bt, width=2000)
        snapshots = training.state.snapshots(folder, every=2)
        make = module._Copy.make

        def torn(copy: Any) -> None:
            make(copy)
            if copy.source.requires_grad or copy.source.numel() == 10_000:
                copy.source.add_(0)

        for step in range(1, 7):
            with contextlib.ExitStack() as failing:
                if step == 2 and case == "full":
                    full = OSError(errno.ENOSPC, "No space left on device")
                    failing.enter_context(mock.patch("os.fsync", side_effect=full))
                if step == 2 and case == "torn":
                    failing.enter_context(mock.patch.object(module._Copy, "make", torn))
                if step == 2 and case == "odd":
                    training.optimizer.param_groups[0]["odd"] = print
                training.step(rank)
                snapshots.wait()
                training.optimizer.param_groups[0].pop("odd", None)
        del kept
        about = [line for line in lines if "snapshot" in line]
        return about, training.state.step, snapshots.written, snapshots.failed


if __name__ == "__main__":
    main()

# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The wheel, installed without the tree, works beside torch and grpcio, and trains with its own
aggregator.

Usage: test_wheel.py BUILD_FOLDER
       test_wheel.py compile    (the wheel is compiled, not taken from a build folder)
"""

import contextlib
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
COMPILE_PATIENCE = 1500.0
BUILD = ""
PROGRAMS = ("basind", "basinctl")
MIB = 1 << 20
# The libraries that manylinux guarantees on every system.
SYSTEM = r"(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+|z))\.so[.0-9]*"

# Imports modules in the order of its arguments, and then uses each of them: a job of one worker, a
# backward pass, a server and its client.
IN_ONE_PROCESS = """
import importlib, sys
from concurrent import futures

for name in sys.argv[1:]:
    importlib.import_module(name)
import basin, grpc, numpy, torch

x = torch.ones(3, requires_grad=True)
(x @ x).backward()
assert x.grad.tolist() == [2.0] * 3

echo = grpc.method_handlers_generic_handler(
    "t.T", {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, _: request)}
)
server = grpc.server(futures.ThreadPoolExecutor(1))
server.add_generic_rpc_handlers((echo,))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    with basin.connect() as client:
        assert client.allreduce(numpy.arange(3.0), "x", op=basin.Sum).tolist() == [0, 1, 2]
    assert channel.unary_unary("/t.T/Echo")(b"again") == b"again"
server.stop(None).wait()

with open("/proc/self/maps") as maps:
    for path in sorted({line.split()[-1] for line in maps if ".so" in line}):
        print(path)
"""
# A tensor on a CUDA device that no machine has.
NO_SUCH_DEVICE = """
import basin, numpy
from basin import _abi
from basin.spec import Op, RoundSpec
from basin.worker import TensorSpec

with basin.connect() as client:
    worker = client.worker
    lane, handles = worker.register("gradients", _abi.GRADIENT, [TensorSpec("x", _abi.F32, (4,))])
    pushed = (_abi.Pushed * 1)(_abi.Pushed(handles[0], 4096, 16, _abi.SAME_DTYPE, 0))
    worker.begin(lane, RoundSpec(Op.SUM))
    try:
        worker.push_device(lane, pushed, 1, 1_000_000, 0)
    except basin.FailedPrecondition as error:
        print(error)
    worker.withdraw(lane, "it is a test")
    print(client.allreduce(numpy.arange(3.0), "y", op=basin.Sum).tolist())
"""
TWO_WORKERS = """
import basin, numpy
with basin.connect() as client:
    sum = client.allreduce(numpy.full(3, client.rank + 1.0, numpy.float32), "x", op=basin.Sum)
    print(basin.__version__, client.world_size, sum.tolist())
    client.barrier()
"""


def run(*command: str | Path, **environment: str) -> str:
    """The output of a command, which must succeed."""
    patience = COMPILE_PATIENCE if BUILD == "compile" else PATIENCE
    done = subprocess.run(
        command, env=clean(environment), capture_output=True, text=True, timeout=patience
    )
    if done.returncode != 0:
        raise AssertionError(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def clean(environment: dict[str, str]) -> dict[str, str]:
    """An environment without the tree: no BASIN_* variable, no PYTHONPATH."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("BASIN_") and name not in ("PYTHONPATH", "LD_LIBRARY_PATH")
    }
    return {**kept, **environment}


class Wheel(unittest.TestCase):
    folder: ClassVar[Path]
    wheel: ClassVar[Path]
    python: ClassVar[Path]
    package: ClassVar[Path]
    cleanup: ClassVar[contextlib.ExitStack]

    @classmethod
    def setUpClass(cls) -> None:
        cls.cleanup = contextlib.ExitStack()
        cls.folder = Path(cls.cleanup.enter_context(tempfile.TemporaryDirectory()))
        arguments = [] if BUILD == "compile" else ["--build", BUILD]
        build = ROOT / "scripts/build-wheel.sh"
        run(build, *arguments, cls.folder / "wheels")
        (cls.wheel,) = (cls.folder / "wheels").iterdir()
        home = cls.folder / "venv"
        run(sys.executable, "-m", "venv", home)
        cls.python = home / "bin/python3"
        run(cls.python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", cls.wheel)
        (site,) = home.glob("lib/python*/site-packages")
        cls.package = site / "basin"
        # NumPy, torch and grpcio come from the environment that runs this test.
        (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.cleanup.close()

    def test_there_is_one_for_every_python(self) -> None:
        self.assertRegex(self.wheel.name, r"^basin_client-0\.1\.0-py3-none-.*manylinux_2_36_")
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
        for name in ("basin/libbasin.so.2", "basin/torch/optimizer.py", "basin/py.typed"):
            self.assertIn(name, names)
        for program in PROGRAMS:
            self.assertIn(f"basin/bin/{program}", names)
        self.assertIn("basin_client-0.1.0.dist-info/licenses/LICENSE", names)
        for manual in ("man8/basind.8", "man1/basinctl.1", "man1/basin-run.1"):
            self.assertIn(f"basin_client-0.1.0.data/data/share/man/{manual}", names)
        shared = {name for name in names if ".so" in name} - {"basin/libbasin.so.2"}
        self.assertTrue(any("/libgrpc-" in name for name in shared), shared)
        unique = r"^basin_client\.libs/lib[\w+-]+-[0-9a-f]{8}(\.\d+)?\.so[.0-9]*$"
        for name in shared:  # A name that is unique in the process.
            self.assertRegex(name, unique)

    def test_it_is_small(self) -> None:
        self.assertLess(self.wheel.stat().st_size, 20 * MIB)

    def test_the_programs_need_nothing_that_a_system_may_lack(self) -> None:
        for program in PROGRAMS:
            with self.subTest(program):
                # name, or name => path, and an address
                lines = run("ldd", self.package / "bin" / program).splitlines()
                outside = [line for line in lines if "/basin_client.libs/" not in line]
                self.assertLess(len(outside), len(lines))
                names = [Path(line.split()[0]).name for line in outside]
                self.assertEqual([], [name for name in names if not re.fullmatch(SYSTEM, name)])

    def test_the_programs_are_commands(self) -> None:
        path = str(self.python.parent)
        for program in PROGRAMS:
            with self.subTest(program):
                self.assertIn(f"usage: {program}", run(program, "--help", PATH=path))
        self.assertIn("basind 0.1.0", run("basind", "version", PATH=path))
        refused = subprocess.run(
            [self.python.parent / "basinctl", "no-such-command"],
            env=clean({}),
            capture_output=True,
            timeout=PATIENCE,
        )
        self.assertEqual(2, refused.returncode, "the program's own code comes back")

    def test_a_signal_reaches_the_program_behind_the_command(self) -> None:
        aggregator, _ = self.start_aggregator(self.python.parent / "basind")
        aggregator.terminate()
        self.assertEqual(0, aggregator.wait(PATIENCE))

    def test_nothing_but_basin_is_exported(self) -> None:
        symbols = run("nm", "-D", "--defined-only", self.package / "libbasin.so.2").splitlines()
        # Except the name of the version, which is absolute.
        kinds_and_names = [line.split()[-2:] for line in symbols]
        names = {name.partition("@")[0] for kind, name in kinds_and_names if kind != "A"}
        self.assertIn("basin_connect", names)
        self.assertEqual(set(), {name for name in names if not name.startswith("basin_")})

    def test_lives_beside_torch_and_grpcio_in_every_order_of_import(self) -> None:
        _, address = self.start_aggregator(self.package / "bin/basind")
        for order in itertools.permutations(("basin", "torch", "grpc")):
            with self.subTest(" ".join(order)):
                job = "-".join(order)
                command: list[str | Path] = [self.python, "-c", IN_ONE_PROCESS, *order]
                said = run(*command, BASIN_ADDRESS=address, BASIN_JOB=job, BASIN_FRESH="true")
                paths = said.splitlines()
                self.assertIn(str(self.package / "libbasin.so.2"), paths)
                ours = [path for path in paths if re.search(r"lib(grpc|protobuf|absl)[^/]*$", path)]
                self.assertNotEqual([], ours)
                for path in ours:
                    self.assertIn("/basin_client.libs/", path)

    def test_needs_no_library_of_cuda_to_start(self) -> None:
        """Built with CUDA or without: the first tensor on a device looks for the driver."""
        for path in (self.package / "libbasin.so.2", self.package / "bin/basind"):
            with self.subTest(path.name):
                needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", path))
                self.assertIn("libc.so.6", needed)
                self.assertEqual([], [name for name in needed if re.match("libcuda|libnv", name)])

    def test_a_compiled_one_contains_no_runtime_of_cuda(self) -> None:
        if BUILD != "compile":
            self.skipTest("the files of a build folder may have one")
        for path in (self.package / "libbasin.so.2", self.package / "bin/basind"):
            with self.subTest(path.name):
                # A text of the runtime's errors.
                has_one = b"CUDA driver version is insufficient" in path.read_bytes()
                self.assertFalse(has_one)
                symbols = run("nm", "-D", "--undefined-only", path)
                self.assertNotRegex(symbols, r" (__cuda|cuda|cu)[A-Z]")
                self.assertNotIn("cuda", run("readelf", "--dynamic", path), "in a search path")

    def test_a_tensor_on_a_device_that_is_not_there_is_refused_with_the_way_out(self) -> None:
        _, address = self.start_aggregator(self.package / "bin/basind")
        said = run(self.python, "-c", NO_SUCH_DEVICE, BASIN_ADDRESS=address, BASIN_FRESH="true")
        error, *others = said.splitlines()
        self.assertIn("Cannot use the tensors of CUDA device 1000000", error)
        with_cuda = "built without CUDA" not in run(self.package / "bin/basind", "version")
        self.assertEqual(with_cuda, "this build has no CUDA kernels" not in error, error)
        self.assertIn("train on the CPU", error)
        self.assertEqual(["[0.0, 1.0, 2.0]"], others)

    def test_two_workers_train_with_basin_run_and_nothing_else(self) -> None:
        said = self.basin_run()
        self.assertEqual(0, said.returncode, said.stderr)
        self.assertEqual(
            [f"[{rank}] 0.1.0 2 [3.0, 3.0, 3.0]" for rank in range(2)],
            sorted(said.stdout.splitlines()),
        )

    def test_the_aggregator_of_the_wheel_comes_before_path_and_after_what_is_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "basind"
            other.write_text("#!/bin/sh\nexit 9\n")
            other.chmod(0o755)
            said = self.basin_run(PATH=folder)
            self.assertEqual(0, said.returncode, said.stderr)
            for named in (
                self.basin_run("--basind", str(other)),
                self.basin_run(BASIN_BASIND=str(other)),
            ):
                self.assertEqual(1, named.returncode)
                self.assertIn(f"{other} ended with 9", named.stderr)

    def test_without_the_programs_it_says_how_to_get_them(self) -> None:
        moved = (self.package / "bin").rename(self.folder / "moved")
        self.addCleanup(moved.rename, self.package / "bin")
        said = self.basin_run(PATH="")
        self.assertEqual(1, said.returncode)
        self.assertIn("basind, was not found", said.stderr)
        self.assertIn("--target basind", said.stderr)
        command = subprocess.run(
            [self.python.parent / "basinctl"], env=clean({}), capture_output=True, text=True
        )
        self.assertEqual(1, command.returncode)
        self.assertIn("build the target basinctl", command.stderr)

    def basin_run(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs two workers with only the environment's own programs in PATH."""
        program = self.python.parent / "basin-run"
        worker = (str(self.python), "-c", TWO_WORKERS)
        return subprocess.run(
            [program, "-n", "2", *options, "--", *worker],
            env=clean({"PATH": str(self.python.parent), **environment}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def start_aggregator(self, program: Path) -> "tuple[subprocess.Popen[str], str]":
        """Returns the process and its address for workers."""
        quiet = ("--admin-listen=none", "--http-listen=none", "--local-listen=none")
        aggregator = subprocess.Popen(
            [program, "serve", "--grpc-listen=127.0.0.1:0", *quiet],
            env=clean({}),
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(aggregator.communicate)
        self.addCleanup(aggregator.kill)
        assert aggregator.stdout is not None
        for line in aggregator.stdout:
            if addresses := json.loads(line).get("addresses"):
                return aggregator, addresses["grpc"]
        raise AssertionError("basind ended")


if __name__ == "__main__":
    needed = ("numpy", "torch", "grpc", "auditwheel", "scikit_build_core")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {', '.join(missing)} not installed; scripts/setup.sh installs it")
        sys.exit(77)
    BUILD = sys.argv[1]
    unittest.main(argv=sys.argv[:1], verbosity=2)

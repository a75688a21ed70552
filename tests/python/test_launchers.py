# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Workers take their identity and their place on the machine from the launcher that starts them:
real ones, alone and within each other.

Usage: test_launchers.py BASIND LIBBASIN
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import ClassVar

import launchers
from jobs import PATIENCE, Aggregator, environment, require

require("numpy", "torch")

# Prints who this worker is, where it is, and a sum to which each worker adds another bit.
WORKER = """
import logging
import os

import basin
import numpy
from basin import machine

logging.basicConfig(level=logging.INFO)
with basin.connect() as client:
    mine = numpy.full(4, 2.0**client.rank, numpy.float32)
    total = client.allreduce(mine, "g", op=basin.Sum)[0]
    where = (machine.local_rank(), machine.local_size(), machine.number(), machine.machines())
    words = (client.worker_id, client.rank, client.world_size, *where, total)
    os.write(1, (" ".join(map(str, ("worker", *words))) + "\\n").encode())  # In one piece.
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")
MPIRUN = "mpirun.openmpi"
HYDRA = "mpiexec.hydra"
NO_SLURM = "Slurm is not there (scripts/setup.sh unpacks it), or this user is not root"


def needs(name: str) -> str:
    return f"{name} is not there; scripts/setup.sh unpacks it"


def open_mpi(*options: str) -> list[str]:
    return [launchers.find(MPIRUN) or MPIRUN, "--allow-run-as-root", "--oversubscribe", *options]


def mpich(*options: str) -> list[str]:
    return [launchers.find(HYDRA) or HYDRA, "-launcher", "fork", *options]


class Launchers(unittest.TestCase):
    aggregator: ClassVar[Aggregator]
    jobs = 0

    @classmethod
    def setUpClass(cls) -> None:
        cls.aggregator = Aggregator(Path(sys.argv[1]))

    @classmethod
    def tearDownClass(cls) -> None:
        cls.aggregator.close()

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.worker = self.folder / "worker.py"
        self.worker.write_text(WORKER)
        Launchers.jobs += 1
        self.environment = environment(
            BASIN_ADDRESS=self.aggregator.address,
            BASIN_JOB=f"job-{Launchers.jobs}",
            BASIN_FRESH="true",
            BASIN_LOG_LEVEL="info",
            OMP_NUM_THREADS="1",
            **launchers.environment(),
        )

    def start(self, *command: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            env={**self.environment, **more},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )

    def workers(self, *command: str, **more: str) -> tuple[list[str], str]:
        """What the workers say that they are, in order, and all that was printed."""
        done = self.start(*command, **more)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return self.said(done.stdout), done.stdout + done.stderr

    @staticmethod
    def said(text: str) -> list[str]:
        lines = [line for line in text.splitlines() if line.startswith("worker ")]
        return sorted(line.removeprefix("worker ") for line in lines)

    @property
    def script(self) -> tuple[str, str, str]:
        return (sys.executable, "-B", str(self.worker))

    # Each line: worker id, rank, size; local rank, local size, machine, machines; sum.
    on_one_machine = ("worker-0 0 2 0 2 0 1 3.0", "worker-1 1 2 1 2 0 1 3.0")

    def test_torchrun(self) -> None:
        run = (sys.executable, *TORCHRUN, "--nproc-per-node=2")
        lines, text = self.workers(*run, str(self.worker))
        self.assertEqual(list(self.on_one_machine), lines)
        self.assertNotIn("not counted", text)

    @unittest.skipUnless(launchers.find(MPIRUN), needs(MPIRUN))
    def test_open_mpi(self) -> None:
        lines, text = self.workers(*open_mpi("-np", "2"), *self.script)
        self.assertEqual(list(self.on_one_machine), lines)
        self.assertNotIn("not counted", text)

    @unittest.skipUnless(launchers.find(HYDRA), needs(HYDRA))
    def test_mpich(self) -> None:
        lines, text = self.workers(*mpich("-n", "2"), *self.script)
        self.assertEqual(list(self.on_one_machine), lines)
        self.assertNotIn("not counted", text)

    @unittest.skipUnless(launchers.find(MPIRUN), needs(MPIRUN))
    def test_a_rank_that_is_left_over_is_refused_with_both_values(self) -> None:
        done = self.start(*open_mpi("-np", "2"), *self.script, RANK="1", WORLD_SIZE="2")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("RANK=1 of 2 (the environment) and OMPI_COMM_WORLD_RANK=0 of 2", done.stderr)
        self.assertIn("BASIN_WORKER_ID", done.stderr)

    @unittest.skipUnless(launchers.find(MPIRUN), needs(MPIRUN))
    def test_what_is_set_comes_before_the_launcher(self) -> None:
        script = ("bash", "-c", 'BASIN_WORKER_ID=w-$OMPI_COMM_WORLD_RANK exec "$@"', "x")
        lines, _ = self.workers(
            *open_mpi("-np", "2"), *script, *self.script, BASIN_MAX_WORKERS="2", RANK="7"
        )
        self.assertEqual([line.replace("worker-", "w-") for line in self.on_one_machine], lines)

    @unittest.skipUnless(launchers.has_slurm(), NO_SLURM)
    def test_slurm(self) -> None:
        with launchers.slurm(self.folder) as cluster:
            srun = str(launchers.find("srun"))
            # The second node has fewer tasks than the first.
            lines, text = self.workers(srun, "-N2", "-n3", *self.script, **cluster)
            self.assertEqual(
                [
                    "worker-0 0 3 0 2 0 2 7.0",
                    "worker-1 1 3 1 2 0 2 7.0",
                    "worker-2 2 3 0 1 1 2 7.0",
                ],
                lines,
            )
            self.assertNotIn("not counted", text)
            self.environment["BASIN_JOB"] += "-pmi"  # Slurm sets the variables of MPICH as well.
            lines, text = self.workers(srun, "--mpi=pmi2", "-n2", "-N1", *self.script, **cluster)
            self.assertEqual(list(self.on_one_machine), lines)
            self.assertNotIn("not counted", text)

            self.environment["BASIN_JOB"] += "-torchrun"
            torchrun = (sys.executable, *TORCHRUN, "--nproc-per-node=2")
            lines, text = self.workers(srun, "-n1", *torchrun, str(self.worker), **cluster)
            self.assertEqual(list(self.on_one_machine), lines)
            self.assertIn(
                "this worker is RANK=1 of 2 (torchrun); not counted: SLURM_PROCID=0 of 1 (Slurm)",
                text,
            )

            # The script of a batch job is no task, also when a launcher runs in it.
            batch = self.folder / "batch.sh"
            job = self.environment["BASIN_JOB"]
            commands = [[f"BASIN_JOB={job}-alone", *self.script]]
            if launchers.find(HYDRA):
                commands.append([f"BASIN_JOB={job}-mpi", *mpich("-n", "2"), *self.script])
            lines_of_batch = [" ".join(["env", *command]) for command in commands]
            batch.write_text("\n".join(["#!/bin/bash -e", *lines_of_batch, ""]))
            sbatch = str(launchers.find("sbatch"))
            output = self.folder / "batch.out"
            done = self.start(sbatch, "-W", "-n3", "-o", str(output), str(batch), **cluster)
            self.assertEqual(0, done.returncode, done.stderr)
            lines = self.said(output.read_text())
            (alone,) = [line for line in lines if not line.startswith("worker-")]
            self.assertRegex(alone, r" 0 1 0 1 0 1 1\.0$")
            of_mpi = list(self.on_one_machine) if launchers.find(HYDRA) else []
            self.assertEqual(of_mpi, [line for line in lines if line != alone])
            self.assertNotIn("not counted", output.read_text())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)

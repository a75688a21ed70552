# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""deploy/gpu-trainers.sbatch starts an aggregator and trainers, and ends with them.

Usage: test_slurm.py [BASIND LIBBASIN BASINCTL]

Slurm's srun is replaced by a program that starts the tasks of all nodes on this machine, where the
aggregator has another port, because the one of the script may be in use.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tools import ROOT, SKIPPED

PROGRAMS: list[str] = []
SCRIPT = ROOT / "deploy/gpu-trainers.sbatch"
PATIENCE_SECONDS = 60
NODES, RANKS = 2, 2

HOSTNAME = "#!/bin/sh\necho localhost\n"
# Passes its log on to srun, too, which learns the port from it.
BASIND = """\
#!/bin/bash
exec {basind} "${{@/#--grpc-listen=*/--grpc-listen=127.0.0.1:0}}" \\
  --admin-listen=127.0.0.1:0 --http-listen=none > >(exec tee -p {log})
"""
BASIND_THAT_ENDS = "#!/bin/sh\nexit 0\n"
# Ends with the highest exit code of a task, as srun does.
SRUN = """\
#!{python}
import json, os, subprocess, sys
command = sys.argv[1:]
while command[0].startswith("--"):
    del command[0]
with open("{log}") as log:
    addresses = next(filter(None, (json.loads(line).get("addresses") for line in log)))
assert os.environ["BASIN_ADDRESS"] == "localhost:29600"
os.environ["BASIN_ADDRESS"] = addresses["grpc"].replace("127.0.0.1", "localhost")
ranks = int(os.environ["SLURM_NTASKS_PER_NODE"])
tasks = [
    subprocess.Popen(
        command,
        env={{
            **os.environ,
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(number % ranks),
            "SLURM_NODEID": str(number // ranks),
            "SLURM_STEP_ID": "0",
            "SLURM_STEP_NUM_NODES": os.environ["SLURM_NNODES"],
            "SLURM_STEP_TASKS_PER_NODE": f"{{ranks}}(x{{os.environ['SLURM_NNODES']}})",
        }},
    )
    for number in range(int(os.environ["SLURM_NTASKS"]))
]
sys.exit(max(task.wait() for task in tasks))
"""
# Prints where it is, what it knows of the others, and a sum to which each rank adds another bit.
TRAINER = """
import os
import sys
import basin
import numpy
from basin import machine
with basin.connect() as client:
    rank = int(os.environ["SLURM_PROCID"])
    mine = numpy.full(40000, 2.0 ** rank, numpy.float32)
    total = client.allreduce(mine, "g", op=basin.Sum)[0]
    place = [machine.number(), machine.local_rank(), machine.local_size()]
    options = [client.worker.options[name] for name in ("min_workers", "local_group", "run_id")]
    words = [client.worker_id, client.world_size, total, *place, *options]
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # In one piece.
    client.finished()
sys.exit(int(sys.argv[1]) if rank == 1 else 0)
"""


class Script(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        self.program("hostname", HOSTNAME)
        log = self.folder / "log"
        os.mkfifo(log)
        self.program("srun", SRUN.format(python=sys.executable, log=log))
        self.program("basind", BASIND.format(basind=PROGRAMS[0], log=log))
        (self.programs / "basinctl").symlink_to(PROGRAMS[2])

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text, encoding="utf-8")
        (self.programs / name).chmod(0o755)

    def run_script(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "tmp").mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BASIN_")}
        slurm = {
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NAME": "digits",
            "SLURM_NTASKS": str(NODES * RANKS),
            "SLURM_NTASKS_PER_NODE": str(RANKS),
            "SLURM_NNODES": str(NODES),
        }
        return subprocess.run(
            ["bash", str(SCRIPT), *arguments],
            cwd=self.folder,
            env={
                **kept,
                **slurm,
                "PATH": f"{self.programs}:{os.environ['PATH']}",
                "TMPDIR": str(self.folder / "tmp"),
                "BASIN_LIBRARY": PROGRAMS[1],
                "PYTHONPATH": str(ROOT / "client/python"),
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    def train(self, exit_code: int) -> subprocess.CompletedProcess[str]:
        return self.run_script(sys.executable, "-c", TRAINER, str(exit_code))

    def test_tasks_meet_as_the_ranks_of_nodes(self) -> None:
        done = self.train(exit_code=0)
        self.assertEqual(0, done.returncode, done.stderr)
        tasks = range(NODES * RANKS)
        expected = [
            f"worker-{task} {len(tasks)} {float(2 ** len(tasks) - 1)} "
            f"{task // RANKS} {task % RANKS} {RANKS} 3 deterministic 4711-0"
            for task in tasks
        ]
        self.assertEqual(expected, sorted(done.stdout.splitlines()))
        # The aggregator has ended, too, and has left nothing in the temporary folder.
        secrets = self.folder / "basin-4711-0"
        log = (secrets / "basind.log").read_text(encoding="utf-8")
        self.assertIn('"event":"ended"', log)
        self.assertNotIn("local_socket", log)
        self.assertEqual([], list((self.folder / "tmp").iterdir()))
        # Nobody else can read tokens and keys.
        self.assertEqual(0o700, secrets.stat().st_mode & 0o777)
        for name in ("token", "operator.token", "grants", "server.key"):
            self.assertEqual(0o600, (secrets / name).stat().st_mode & 0o777, name)

    def test_ends_with_the_exit_code_of_the_trainers(self) -> None:
        self.assertEqual(78, self.train(exit_code=78).returncode)

    def test_ends_when_the_aggregator_ends(self) -> None:
        self.program("basind", BASIND_THAT_ENDS)
        done = self.train(exit_code=0)
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stderr, r"aggregator has ended .*basin-4711-0/basind\.log")

    def test_numbers_of_the_header_fit_together(self) -> None:
        text = SCRIPT.read_text(encoding="utf-8")
        header = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.M))
        # One rank for each GPU, and each sees the others' GPUs.
        self.assertEqual(header["gpus-per-node"], header["ntasks-per-node"])
        self.assertEqual("none", header["gpu-bind"])


if __name__ == "__main__":
    PROGRAMS = sys.argv[1:]
    if not PROGRAMS:
        print("skipped: this build has no basind")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)

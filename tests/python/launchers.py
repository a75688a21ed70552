# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The launchers of MPI and Slurm: those that scripts/setup.sh has unpacked, or installed ones."""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from jobs import ROOT

UNPACKED = ROOT / ".cache/launchers"

# Two nodes on this machine, without the service that usually proves who a user is.
_SLURM_CONF = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName=n[0-1] NodeHostname=localhost Port=[{ports[1]}-{ports[2]}] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def find(name: str) -> str | None:
    """The path of a program, which may have the suffix of its implementation."""
    places = [str(UNPACKED / "usr/bin"), str(UNPACKED / "usr/sbin"), "/usr/sbin"]
    return shutil.which(name, path=os.pathsep.join([*places, os.environ["PATH"]]))


def _libraries() -> Path | None:
    found = [path for path in UNPACKED.glob("usr/lib/*-linux-gnu") if path.is_dir()]
    return found[0] if found else None


def environment() -> dict[str, str]:
    """What unpacked launchers need to find their own files."""
    libraries = _libraries()
    if libraries is None:
        return {}
    paths = [libraries, libraries / "slurm-wlm", os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        "PATH": os.pathsep.join([str(UNPACKED / "usr/bin"), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join(str(path) for path in paths if str(path)),
        "OPAL_PREFIX": str(UNPACKED / "usr"),
        "OPAL_LIBDIR": str(libraries / "openmpi/lib"),
        "OPAL_PKGLIBDIR": str(libraries / "openmpi/lib/openmpi3"),
        "OPAL_DATADIR": str(UNPACKED / "usr/share"),
        "OPAL_PKGDATADIR": str(UNPACKED / "usr/share/openmpi"),
    }


def has_slurm() -> bool:
    """Whether a cluster can be started here; its daemons start tasks as root."""
    needed = ("srun", "sbatch", "slurmctld-wlm", "slurmd-wlm", "slurmstepd-wlm")
    return os.geteuid() == 0 and all(find(name) is not None for name in needed)


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """A cluster of two nodes of four processors, for as long as the block runs. Gives the
    environment for srun and sbatch, which wait until the nodes are there.

    REQUIRES: has_slurm().
    """
    unpacked = _libraries()
    plugins = (unpacked or Path("/usr/lib/x86_64-linux-gnu")) / "slurm-wlm"
    (folder / "state").mkdir()
    conf = folder / "slurm.conf"
    conf.write_text(_SLURM_CONF.format(ports=_ports(3), plugins=plugins, folder=folder))
    made = {**environment(), "SLURM_CONF": str(conf)}
    stepd = find("slurmstepd-wlm")
    with contextlib.ExitStack() as kept:
        controller = [find("slurmctld-wlm"), "-c", "-D"]
        kept.enter_context(_daemon(controller, made, "Running as primary controller"))
        for node in ("n0", "n1"):
            (folder / f"spool-{node}").mkdir()
            command = [find("slurmd-wlm"), "-N", node, "-D", "-d", stepd]
            kept.enter_context(_daemon(command, made, "slurmd-wlm started on"))
        yield made


def _ports(count: int) -> list[int]:
    """Consecutive ones that nothing listens on."""
    while True:
        with contextlib.ExitStack() as held:
            first = held.enter_context(socket.socket())
            first.bind(("localhost", 0))
            ports = [first.getsockname()[1] + i for i in range(count)]
            try:
                for port in ports[1:]:
                    held.enter_context(socket.socket()).bind(("localhost", port))
            except (OSError, OverflowError):
                continue
            return ports


@contextlib.contextmanager
def _daemon(command: list[str | None], made: dict[str, str], serving: str) -> Iterator[None]:
    """Runs it in the block, which begins when it says that it serves."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env={**os.environ, **made},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = process.stderr
    assert log is not None
    lines: list[str] = []
    reader = threading.Thread(target=lines.extend, args=(log,), daemon=True)
    try:
        for line in log:
            lines.append(line)
            if serving in line:
                break
        else:
            raise AssertionError("".join(lines[-20:]))
        # It is read on, so that it never blocks the daemon.
        reader.start()
        yield
    finally:
        process.terminate()
        process.wait()
        if reader.ident is not None:
            reader.join()
        log.close()

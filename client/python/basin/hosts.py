# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The machines of basin-run: their list, the places of workers on them, and how a worker is started
on another one. Starts nothing itself.

A worker on another machine is the child of a shell that ssh starts there. The shell's input is the
worker's script, and then a line with the name of each signal for the worker. The end of the input,
which is also that of the connection or of basin-run, kills the worker, so none is left behind.
"""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Starts without ssh.
HERE = "localhost"
# A host that does not answer for 15 seconds is given up. Nobody is there to type a password.
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
# The exit code of ssh if it cannot connect, or is disconnected.
SSH_FAILED = 255
# What a worker there needs to find the same programs and libraries, and what basin-run sets.
_PASSED = frozenset(
    "LD_LIBRARY_PATH OMP_NUM_THREADS PATH PYTHONPATH VIRTUAL_ENV "
    "MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ PYTHONUNBUFFERED "
    "GROUP_RANK LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT RANK WORLD_SIZE".split()
)
# `add` looks for it, and the process is not on that machine.
_KEPT_HERE = "BASIN_RUN_PROCESS"


@dataclass(frozen=True)
class Host:
    name: str
    slots: int  # How many workers may run there at once.

    @property
    def is_here(self) -> bool:
        return self.name == HERE


@dataclass(frozen=True)
class Place:
    """Where a worker runs."""

    host: Host
    number: int  # The host's, in the list.
    slot: int
    size: int  # How many of the first workers run there.


def parse(given: str) -> list[Host]:
    """The hosts of a list like `a:4,b:2`, or of a file with one a line, where `#` begins a comment
    and `a slots=4` is another way to write `a:4`. Raises ValueError in words, or OSError."""
    if "," not in given and Path(given).is_file():
        lines = (line.partition("#")[0].strip() for line in Path(given).read_text().splitlines())
        words = [":".join(line.replace("slots=", " ").split()) for line in lines if line]
    else:
        words = [word.strip() for word in given.split(",")]
        # A name of a machine has no slash, and most that have a suffix have slots, too.
        if "/" in given or given.endswith((".txt", ".hosts", ".cfg")):
            raise ValueError(f"there is no file {given}")
    hosts = [_host(word) for word in words]
    names = [host.name for host in hosts]
    if not hosts:
        raise ValueError(f"{given} names no host")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} is named twice. Add its slots up")
    return hosts


def _host(word: str) -> Host:
    name, colon, slots = word.rpartition(":")
    if not colon or word.endswith("]"):
        name, slots = word, "1"
    name = name.strip("[]")
    # ssh would take a name with a dash for an option.
    if not name or name.startswith("-") or not slots.isdecimal() or int(slots) < 1:
        raise ValueError(f"'{word}' is not HOST:SLOTS, such as gpu-1:8")
    return Host(name, int(slots))


def free_place(hosts: Sequence[Host], first: int, taken: Collection[tuple[str, int]]) -> Place:
    """The first place that is not taken, by the name of its host and its slot.

    REQUIRES: there is one, and `first` workers, which the job begins with, have places.
    """
    for number, host in enumerate(hosts):
        size, first = min(host.slots, first), first - min(host.slots, first)
        for slot in range(host.slots):
            if (host.name, slot) not in taken:
                return Place(host, number, slot, max(size, slot + 1))
    raise AssertionError("no place is free")


def used(hosts: Sequence[Host], workers: int) -> int:
    """How many hosts so many workers fill, in order; the last one may have free slots."""
    count = 0
    for host in hosts:
        if workers <= 0:
            break
        count, workers = count + 1, workers - host.slots
    return count


def remote_script(
    command: Sequence[str],
    environment: Mapping[str, str],
    names: Collection[str],
    size: int,
    folder: str,
) -> str:
    """The script of the shell on the other machine. It gives the command the variables of Basin,
    those that help it to find the same programs, and `names`; and without OMP_NUM_THREADS, its part
    of the cores. The command's exit code is that of the shell."""
    kept = sorted(
        name
        for name in environment
        if name != _KEPT_HERE and (name.startswith("BASIN_") or name in _PASSED or name in names)
    )
    given = " ".join(f"{name}={shlex.quote(environment[name])}" for name in kept)
    threads = "" if "OMP_NUM_THREADS" in environment else _THREADS.format(size=size)
    return f"cd {shlex.quote(folder)} || exit 1\n{threads}export {given}\n" + _SHELL.format(
        command=shlex.join(command)
    )


_THREADS = """\
OMP_NUM_THREADS=$(($(nproc) / {size}))
[ "$OMP_NUM_THREADS" -gt 0 ] || OMP_NUM_THREADS=1
export OMP_NUM_THREADS
"""
# The worker has its own group, as on this machine. Until it does, its process is signalled.
_SHELL = """\
exec 3<&0
setsid {command} 3<&- </dev/null &
worker=$!
send() {{ kill -s "$1" -- "-$worker" || kill -s "$1" "$worker"; }}
(while read -r name; do send "$name"; done; send KILL) <&3 >/dev/null 2>&1 &
reader=$!
exec 3<&-
{{ wait "$worker"; }} 2>/dev/null
code=$?
kill -s KILL -- "-$worker" 2>/dev/null
kill -s KILL "$reader" 2>/dev/null
exit $code
"""


def ssh_command(ssh: str, host: Host, script: str) -> list[str]:
    """The command that runs a script whose bytes are the first of its input. Nothing of it can be
    seen in the lists of processes; dd reads no byte more."""
    size = len(script.encode())
    reads = f'eval "$(dd bs=1 count={size} 2>/dev/null)"'
    return [*shlex.split(ssh), host.name, f"exec sh -c {shlex.quote(reads)}"]

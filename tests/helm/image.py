# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Builds images with Buildah and runs them with runc, without an engine or a registry.

Bases are built from Debian's packages. The store of images is a separate folder, so nothing else
on the machine is seen or changed.
"""

import contextlib
import json
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOLS = ("buildah", "mmdebstrap", "runc")


@dataclass(frozen=True)
class Base:
    """A base image; `variant` and `packages` are arguments of mmdebstrap."""

    name: str
    variant: str
    packages: str = ""


# Without a shell.
RUNTIME = Base("runtime", "extract", "libc6,base-files,netbase,tzdata")
# With a shell and little more.
SHELL = Base("shell", "extract", "libc6,dash,coreutils")
# With a package manager. Not named "debian", which is an alias for an image in a registry.
DEBIAN = Base("whole", "minbase", "ca-certificates")

# The longest wait for a line of a program that starts.
PATIENCE_SECONDS = 60.0


def why_not() -> str:
    """Why images cannot be built and run on this machine; empty if they can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not installed; scripts/setup.sh does that"
    if os.geteuid() != 0:
        return "only root can make bases and containers"
    return ""


class CannotMakeBase(Exception):
    """Debian's packages are unavailable, or images cannot be stored on this machine."""


class Images:
    """A store of images below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # This storage driver also works inside containers.
        self._storage = [
            "--storage-driver=vfs",
            f"--root={root / 'store'}",
            f"--runroot={root / 'run'}",
        ]

    def _buildah(self, *arguments: str | Path) -> str:
        command = ["buildah", *self._storage, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"buildah {arguments[0]}:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def make_base(self, base: Base) -> None:
        """Raises CannotMakeBase."""
        tar = self._root / f"{base.name}.tar"
        hooks = "/usr/share/mmdebstrap/hooks/merged-usr"
        command = ["mmdebstrap", "--quiet", f"--variant={base.variant}", f"--hook-dir={hooks}"]
        command += [f"--include={base.packages}", "bookworm", str(tar)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise CannotMakeBase(done.stderr)
        try:
            container = self._buildah("from", "scratch")
            self._buildah("add", "--quiet", container, tar, "/")
            self._buildah("commit", "--quiet", "--rm", container, base.name)
        except RuntimeError as error:
            raise CannotMakeBase(str(error)) from error
        tar.unlink()

    def build(self, name: str, dockerfile: Path, context: Path, arguments: dict[str, str]) -> None:
        """Raises RuntimeError with the builder's output."""
        given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        self._buildah(
            "bud", "--isolation=chroot", *given, f"--file={dockerfile}", f"--tag={name}", context
        )

    def configuration(self, name: str) -> dict[str, Any]:
        """The image's configuration of how to run it."""
        found = json.loads(self._buildah("inspect", "--type=image", name))
        configuration: dict[str, Any] = found["OCIv1"]["config"]
        return configuration

    def save(self, name: str, archive: Path) -> None:
        """Writes the image to a file that Docker and containerd can load."""
        self._buildah("push", "--quiet", name, f"docker-archive:{archive}:localhost/{name}")

    def mount(self, name: str) -> Path:
        """A folder with the contents of the image."""
        return Path(self._buildah("mount", self._buildah("from", name)))


def _specification(
    root: Path, user: str, arguments: list[str], mounts: dict[str, Path], writable: dict[str, Path]
) -> dict[str, Any]:
    uid, gid = (int(number) for number in user.split(":"))
    binds = [
        {"destination": at, "type": "bind", "source": str(path), "options": ["bind", mode]}
        for folders, mode in ((mounts, "ro"), (writable, "rw"))
        for at, path in folders.items()
    ]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": uid, "gid": gid},
            "args": arguments,
            "cwd": "/",
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            *binds,
        ],
        # A separate network namespace, with only the loopback interface.
        "linux": {"namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount", "network")]},
    }


class Container:
    """A running container with the restrictions of Kubernetes."""

    def __init__(self, name: str, process: subprocess.Popen[str], state: list[str]) -> None:
        self._name = name
        self._process = process
        self._runc = state
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, part: str) -> str:
        """The next line of its output that contains `part`; AssertionError if there is none."""
        before = []
        with contextlib.suppress(queue.Empty):
            while (line := self._lines.get(timeout=PATIENCE_SECONDS)) is not None:
                if part in line:
                    return line
                before.append(line)
        raise AssertionError(f"no line with {part!r} in:\n{''.join(before)}")

    @property
    def pid(self) -> int:
        """The id of its first process, as seen outside."""
        state = subprocess.run(
            [*self._runc, "state", self._name], check=True, capture_output=True, text=True
        )
        pid: int = json.loads(state.stdout)["pid"]
        return pid

    def ask(self, port: int, path: str) -> str:
        """Status and body of a page, requested from inside its network."""
        program = (
            "import urllib.request as r\n"
            f"with r.urlopen('http://127.0.0.1:{port}{path}', timeout=10) as a:\n"
            "    print(a.status, a.read().decode(), end='')"
        )
        command = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "python3", "-c", program]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def execute(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs another program in it, like `kubectl exec`."""
        command = [*self._runc, "exec", self._name, *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    def signal(self, name: str) -> None:
        subprocess.run([*self._runc, "kill", self._name, name], check=True)

    def wait(self) -> int:
        """Its exit status."""
        return self._process.wait(timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        subprocess.run(
            [*self._runc, "delete", "--force", self._name], check=False, capture_output=True
        )
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextlib.contextmanager
def container(
    folder: Path,
    root: Path,
    user: str,
    arguments: list[str],
    mounts: dict[str, Path],
    writable: dict[str, Path],
) -> Iterator[Container]:
    """Runs `arguments` in the read-only `root`. `folder` is for files of runc."""
    folder.mkdir()
    specification = _specification(root, user, arguments, mounts, writable)
    (folder / "config.json").write_text(json.dumps(specification), encoding="utf-8")
    runc = ["runc", f"--root={folder / 'state'}"]
    name = f"basin-test-{os.getpid()}"
    process = subprocess.Popen(
        [*runc, "run", f"--bundle={folder}", name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running = Container(name, process, runc)
    try:
        yield running
    finally:
        running.close()

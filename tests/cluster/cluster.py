# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A cluster of one node, in namespaces of its own: real Kubernetes, on this machine alone.

build-kubernetes.sh makes its programs and keeps them in a cache; node.sh is the node.
"""

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build-kubernetes.sh"

TOOLS = ("apt-get", "cc", "ip", "nsenter", "openssl", "runc", "unshare")
CONTROL_GROUPS = Path("/sys/fs/cgroup")

# For one thing that Kubernetes does, with much else on the machine.
PATIENCE_SECONDS = 240


def why_not() -> str:
    """Why this machine cannot have a cluster; empty if it can."""
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed; scripts/setup.sh does that"
    if os.geteuid() != 0:
        return "only root can make namespaces for a cluster"
    with tempfile.TemporaryDirectory() as folder:
        tried = (
            f"mkdir {folder}/a {folder}/b {folder}/c {folder}/d && "
            "mount --make-rprivate / && "
            f"mount -t overlay -o lowerdir={folder}/a,upperdir={folder}/b,workdir={folder}/c "
            f"overlay {folder}/d && ip link add probe type bridge"
        )
        done = subprocess.run(
            ["unshare", *NAMESPACES, "sh", "-c", tried], check=False, capture_output=True, text=True
        )
    if done.returncode != 0:
        return f"no namespaces with overlays and bridges here: {done.stderr.strip()}"
    group = _control_groups()[0] / f"basin-probe-{os.getpid()}"
    try:
        group.mkdir()
        group.rmdir()
    except OSError as error:
        return f"no control groups here: {error}"
    return ""


NAMESPACES = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


def _control_groups() -> list[Path]:
    """The hierarchies: one, or one for each controller."""
    if (CONTROL_GROUPS / "cgroup.controllers").exists():
        return [CONTROL_GROUPS]
    return [folder for folder in CONTROL_GROUPS.iterdir() if not folder.is_symlink()]


def condition(manifest: Manifest, name: str) -> bool:
    """Whether the condition of this name is true."""
    conditions = manifest.get("status", {}).get("conditions", [])
    return any(one["type"] == name and one["status"] == "True" for one in conditions)


class CannotBuild(Exception):
    """Debian's packages are unavailable, or do not compile."""


class Cluster:
    """Starts a cluster; close() ends it, with all that runs in it. Raises CannotBuild.

    The node needs a while to start: await_node() before the first pod.
    """

    def __init__(self) -> None:
        built = subprocess.run(["nice", BUILD], check=False, capture_output=True, text=True)
        if built.returncode != 0:
            raise CannotBuild(built.stderr[-2000:])
        where = subprocess.run([BUILD, "--where"], check=True, capture_output=True, text=True)
        self.programs = Path(where.stdout.strip())
        # The control group has its name too.
        self.folder = Path(tempfile.mkdtemp(prefix="basin-cluster-"))
        self._log = (self.folder / "node.log").open("w", encoding="utf-8")
        self._unshare = subprocess.Popen(
            ["unshare", *NAMESPACES, HERE / "node.sh", self.programs, self.folder],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._first = self._await_first_process()

    def await_node(self) -> None:
        """Waits until pods can run. RuntimeError with the logs if the node ends."""
        # While the server starts, there is nothing to watch.
        while self.run("kubectl", "get", "nodes", check=False).returncode != 0:
            self._check_that_it_runs(0.5)
        self.watch("nodes", lambda node: condition(node, "Ready"))
        # A pod is refused until its namespace has this account.
        self.watch("serviceaccounts", lambda account: account["metadata"]["name"] == "default")

    def logs(self) -> str:
        """The last lines of each part."""
        files = [self.folder / "node.log", *sorted(self.folder.glob("log/*"))]
        return "\n".join(
            f"== {file.name}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-15:])
            for file in files
            if file.exists()
        )

    def _await_first_process(self) -> int:
        """Its id, as seen outside."""
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        while not (found := children.read_text().split()):
            self._check_that_it_runs(0.05)
        return int(found[0])

    def _check_that_it_runs(self, seconds: float) -> None:
        """Waits for so long; RuntimeError with the logs if it ends."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._unshare.wait(timeout=seconds)
            raise RuntimeError(f"the node has ended:\n{self.logs()}")

    def command(self, *command: str | Path) -> list[str]:
        """The command, in the network of the node."""
        return ["nsenter", f"--net=/proc/{self._first}/ns/net", *map(str, command)]

    def environment(self) -> dict[str, str]:
        """In it, kubectl and Helm use this cluster."""
        path = f"{self.programs / 'bin'}:{os.environ['PATH']}"
        return {
            **os.environ,
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "HOME": str(self.folder / "home"),
            "PATH": path,
        }

    def run(
        self,
        *command: str | Path,
        check: bool = True,
        stdin: str = "",
        folder: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in the network of the node; AssertionError with its output if it fails."""
        done = subprocess.run(
            self.command(*command),
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            cwd=folder,
            env=self.environment() | (env or {}),
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
        return done

    def kubectl(self, *arguments: str | Path, stdin: str = "") -> str:
        return self.run("kubectl", *arguments, stdin=stdin).stdout

    def start(self, *command: str | Path) -> subprocess.Popen[str]:
        """The same for a command that does not end by itself; its output is one stream."""
        return subprocess.Popen(
            self.command(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
        )

    def watch(self, kind: str, holds: Callable[[Manifest], bool], *arguments: str) -> Manifest:
        """The first object of the kind for which it holds, now or as soon as there is one."""
        process = self.start("kubectl", "get", kind, *arguments, "--watch", "--output=json")
        watchdog = threading.Timer(PATIENCE_SECONDS, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                # Objects follow each other, and only the last line of one has no indent.
                if line != "}\n":
                    continue
                manifest: Manifest = json.loads("".join(lines))
                if holds(manifest):
                    return manifest
                lines = []
            raise AssertionError(f"{kind} {arguments}: not seen before {process.args!r} ended")
        finally:
            watchdog.cancel()
            process.kill()
            process.communicate()

    def inside(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs a command that sees the node's files too."""
        return subprocess.run(
            ["nsenter", f"--target={self._first}", "--mount", "--net", *map(str, command)],
            check=False,
            capture_output=True,
            text=True,
        )

    def import_image(self, archive: Path) -> None:
        """Makes an image known to the node, from an archive in `folder`."""
        ctr = ["/run/programs/bin/ctr", "--namespace=k8s.io", "images", "import"]
        done = self.inside(*ctr, Path("/run/work") / archive.relative_to(self.folder))
        if done.returncode != 0:
            raise AssertionError(f"{archive.name}: {done.stdout}{done.stderr}")

    def close(self) -> None:
        # With the first process, the kernel ends all others of its namespace, and then itself.
        with contextlib.suppress(OSError):
            first = os.pidfd_open(self._first)
            self._unshare.kill()
            select.select([first], [], [], PATIENCE_SECONDS)
            os.close(first)
        self._unshare.kill()
        self._unshare.wait()
        self._log.close()
        for hierarchy in _control_groups():
            # The innermost first.
            for group in sorted(hierarchy.glob(f"{self.folder.name}/**/"), reverse=True):
                with contextlib.suppress(OSError):
                    group.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)

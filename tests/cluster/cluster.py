# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A cluster of one or two nodes in namespaces of their own: real Kubernetes, on this machine alone.

build-kubernetes.sh makes its programs and keeps them in a cache; node.sh is a node.
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
from typing import IO, Any

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


# From the network of the first node to that of another.
ADD_WIRE = ("ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire")
ATTACH_WIRE = (
    ("ip", "link", "set", "wire", "master", "node", "up"),
    ("ip", "route", "add", "10.244.1.0/24", "via", "10.200.0.2"),
)

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


class Node:
    """Its processes, files and network; close() ends them."""

    def __init__(self, programs: Path, *first: Path) -> None:
        """`first`: the folder of the first node of the cluster, if this is not that one."""
        self.programs = programs
        # The control group has its name too.
        self.folder = Path(tempfile.mkdtemp(prefix="basin-cluster-"))
        self._log = (self.folder / "node.log").open("w", encoding="utf-8")
        self._unshare = subprocess.Popen(
            ["unshare", *NAMESPACES, HERE / "node.sh", programs, self.folder, *first],
            stdin=subprocess.PIPE if first else subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        # The id of its first process, as seen outside.
        self.first = self._await_first_process()

    def go_on(self) -> None:
        """Its network is connected."""
        assert self._unshare.stdin is not None
        self._unshare.stdin.write(b"\n")
        self._unshare.stdin.close()

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

    def inside(
        self, *command: str | Path, stdin: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command that sees the node's files too."""
        return subprocess.run(
            ["nsenter", f"--target={self.first}", "--mount", "--net", *map(str, command)],
            check=False,
            capture_output=True,
            text=True,
            stdin=stdin or subprocess.DEVNULL,
        )

    def import_image(self, archive: Path) -> None:
        """Makes an image known to the node."""
        ctr = ["/run/programs/bin/ctr", "--namespace=k8s.io", "images", "import", "-"]
        with archive.open("rb") as content:
            done = self.inside(*ctr, stdin=content)
        if done.returncode != 0:
            raise AssertionError(f"{archive.name}: {done.stdout}{done.stderr}")

    def kill(self) -> None:
        """Ends its processes, those of its pods as well."""
        # With the first process, the kernel ends all others of its namespace, and then itself.
        with contextlib.suppress(OSError):
            first = os.pidfd_open(self.first)
            self._unshare.kill()
            select.select([first], [], [], PATIENCE_SECONDS)
            os.close(first)
        self._unshare.kill()
        self._unshare.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()
        for hierarchy in _control_groups():
            # The innermost first.
            for group in sorted(hierarchy.glob(f"{self.folder.name}/**/"), reverse=True):
                with contextlib.suppress(OSError):
                    group.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)


class Cluster(Node):
    """Starts a cluster of one node; close() ends it, with all that runs in it. Raises CannotBuild.

    The node needs a while to start: await_nodes() before the first pod.
    """

    def __init__(self) -> None:
        built = subprocess.run(["nice", BUILD], check=False, capture_output=True, text=True)
        if built.returncode != 0:
            raise CannotBuild(built.stderr[-2000:])
        where = subprocess.run([BUILD, "--where"], check=True, capture_output=True, text=True)
        super().__init__(Path(where.stdout.strip()))
        self._second: Node | None = None

    def add_node(self) -> Node:
        """Starts the second node. REQUIRES: the first one is ready."""
        second = self._second = Node(self.programs, self.folder)
        self.run(*ADD_WIRE, "netns", str(second.first))
        for command in ATTACH_WIRE:
            self.run(*command)
        second.go_on()
        return second

    def lose_node(self, lost: Node) -> None:
        """The second node ends as a machine without power does: nothing that it sends arrives."""
        self.run("ip", "link", "set", "wire", "down")
        lost.kill()

    def await_nodes(self, count: int) -> None:
        """Waits until pods can run. RuntimeError with the logs if the first node ends."""
        # While the server starts, there is nothing to watch.
        while self.run("kubectl", "get", "nodes", check=False).returncode != 0:
            self._check_that_it_runs(0.5)
        for number in range(1, count + 1):
            name = f"--field-selector=metadata.name=node-{number}"
            self.watch("nodes", lambda node: condition(node, "Ready"), name)
        # A pod is refused until its namespace has this account.
        self.watch("serviceaccounts", lambda account: account["metadata"]["name"] == "default")

    def command(self, *command: str | Path) -> list[str]:
        """The command, in the network of the node."""
        return ["nsenter", f"--net=/proc/{self.first}/ns/net", *map(str, command)]

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

    def close(self) -> None:
        if self._second is not None:
            self._second.close()
        super().close()

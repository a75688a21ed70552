# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Builds the Dockerfile's image and runs it as the chart does.

Its base has no shell.

Usage: test_image.py PROGRAM...      the programs of this build go into the image (the argument
                                     PREBUILT): the stage that compiles only copies
       test_image.py --from-source   the Dockerfile installs compilers and compiles
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, ClassVar

import chart
import image
import yaml
from chart import VALUE_SETS
from tools import CHART, ROOT, SKIPPED, require

PROGRAMS: list[Path] = []

MEGABYTE = 1e6
# The programs and the libraries of Debian that they need. Most of it is gRPC and protobuf. Programs
# that were built where nvcc is have 7 MB more: CUDA's runtime, and kernels for each architecture.
MOST_ADDED = 37 * MEGABYTE


def size_of(root: Path) -> int:
    """The bytes of all files in it, without following links."""
    return sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir())


class Image(unittest.TestCase):
    folder: ClassVar[Path]
    images: ClassVar[image.Images]
    root: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.images = image.Images(cls.folder)
        build_base = image.SHELL if PROGRAMS else image.DEBIAN
        try:
            cls.images.make_base(build_base)
            cls.images.make_base(image.RUNTIME)
        except image.CannotMakeBase as error:
            print(f"skipped: no base image can be made here:\n{error}")
            sys.exit(SKIPPED)
        arguments = {
            "BUILD_BASE": f"localhost/{build_base.name}",
            "BASE": f"localhost/{image.RUNTIME.name}",
        }
        context = ROOT
        if PROGRAMS:
            context = cls.folder / "context"
            collect: list[str | Path] = [ROOT / "scripts/image-root.sh", context / "image-root"]
            subprocess.run([*collect, *PROGRAMS], check=True)
            arguments["PREBUILT"] = "image-root"
        cls.images.build("basin", ROOT / "Dockerfile", context, arguments)
        cls.root = cls.images.mount("basin")

    def test_says_how_it_is_run(self) -> None:
        found = self.images.configuration("basin")
        self.assertEqual("65532:65532", found["User"])
        self.assertEqual(["/usr/bin/basind"], found["Entrypoint"])
        self.assertEqual(["serve"], found["Cmd"])
        self.assertEqual({"29600/tcp", "29601/tcp"}, set(found["ExposedPorts"]))

    def test_says_what_it_is(self) -> None:
        about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
        self.assertEqual(
            {
                "title": "Basin",
                "description": about["description"],
                "version": about["appVersion"],
                "licenses": "Apache-2.0",
                "vendor": "The Basin Authors",
            },
            {
                key.removeprefix("org.opencontainers.image."): value
                for key, value in self.images.configuration("basin")["Labels"].items()
                if key.startswith("org.opencontainers.image.")
            },
        )

    def test_what_it_adds_to_its_base_is_small(self) -> None:
        base = self.images.mount(image.RUNTIME.name)
        whole, below = size_of(self.root), size_of(base)
        print(f"image: {whole / MEGABYTE:.1f} MB, of which its base is {below / MEGABYTE:.1f} MB")
        self.assertLess(whole - below, MOST_ADDED)

    def test_programs_have_no_symbols(self) -> None:
        for program in ("basind", "basinctl"):
            sections = subprocess.run(
                ["readelf", "--section-headers", "--wide", self.root / "usr/bin" / program],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            self.assertIn(" .dynsym ", sections)
            self.assertNotRegex(sections, r" \.(symtab|debug\w*) ")

    def test_has_the_programs_and_no_shell(self) -> None:
        for program in ("basind", "basinctl"):
            self.assertTrue((self.root / "usr/bin" / program).exists(), program)
        shells = list(self.root.glob("usr/bin/*sh"))
        self.assertEqual([], shells)

    def test_nothing_that_it_adds_can_be_changed(self) -> None:
        added = [*self.root.glob("usr/bin/basin*"), *self.root.glob("usr/lib/*/libgrpc*")]
        self.assertGreater(len(added), 1)
        for path in added:
            with self.subTest(path.name):
                status = path.stat()
                self.assertEqual((0, 0), (status.st_uid, status.st_gid))
                self.assertEqual(0, status.st_mode & 0o022)

    def test_serves_as_the_chart_says(self) -> None:
        manifests = chart.render("helm-4", VALUE_SETS["smallest"])
        pod: dict[str, Any] = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
        (spec,) = pod["containers"]
        user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
        config, state = self.folder / "config", self.folder / "state"
        config.mkdir()
        (config / "basind.yaml").write_text(chart.configuration(manifests), encoding="utf-8")
        state.mkdir()
        # Kubernetes does this for fsGroup.
        subprocess.run(["chown", user, state], check=True)
        at = {mount["name"]: mount["mountPath"] for mount in spec["volumeMounts"]}
        (http,) = [port["containerPort"] for port in spec["ports"] if port["name"] == "http"]
        # The configuration names the file in the volume; at a first start it does not exist.
        with image.container(
            self.folder / "bundle",
            self.root,
            user,
            [*self.images.configuration("basin")["Entrypoint"], *spec["args"]],
            mounts={at["config"]: config},
            writable={at["state"]: state},
        ) as running:
            self.assertIn(f":{http}", running.wait_for('"event":"serving"'))
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                path = spec[probe]["httpGet"]["path"]
                self.assertTrue(running.ask(http, path).startswith("200 "), path)
            self.assertIn("basin_build_info", running.ask(http, "/metrics"))
            self.assert_restricted(running.pid)
            for command in (["/usr/bin/basinctl", "status"], ["/usr/bin/basind", "healthcheck"]):
                done = running.execute(*command)
                self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            running.signal("TERM")
            running.wait_for('"event":"ended"')
            self.assertEqual(0, running.wait())

    def assert_restricted(self, pid: int) -> None:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        found = dict(re.findall(r"^(\w+):\s*(.*)$", status, re.M))
        self.assertEqual(["65532"] * 4, found["Uid"].split())
        self.assertEqual(0, int(found["CapEff"], 16) | int(found["CapBnd"], 16))
        self.assertEqual("1", found["NoNewPrivs"])
        mounts = Path(f"/proc/{pid}/mounts").read_text(encoding="utf-8")
        (options,) = re.findall(r"^\S+ / \S+ (\S+)", mounts, re.M)
        self.assertIn("ro", options.split(","))


class CollectedRoot(unittest.TestCase):
    root: Path

    def setUp(self) -> None:
        self.root = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def collect(self, link: str) -> subprocess.CompletedProcess[str]:
        """Collects a program that `link` links with a library libf.so in the folder."""
        build = "echo 'int f() { return 0; }' > f.c && echo 'int f(); int main() { f(); }' > m.c"
        subprocess.run(f"{build} && {link}", check=True, shell=True, cwd=self.root)
        return subprocess.run(
            [ROOT / "scripts/image-root.sh", self.root / "out", self.root / "program"],
            check=False,
            capture_output=True,
            text=True,
        )

    def test_program_without_its_library_is_refused(self) -> None:
        done = self.collect("cc -shared -o libf.so f.c && cc -o program m.c -L. -lf")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("needs libf.so => not found", done.stderr)

    def test_library_from_elsewhere_is_where_the_loader_finds_it(self) -> None:
        for folder in ("opt", "work/lib/project"):
            with self.subTest(folder):
                done = self.collect(
                    f"mkdir -p {folder} && cc -shared -Wl,-soname,libf.so -o {folder}/libf.so f.c "
                    f"&& cc -o program m.c -L{folder} -lf -Wl,-rpath,{self.root / folder}"
                )
                self.assertEqual(0, done.returncode, done.stderr)
                out = self.root / "out"
                found = [str(path.relative_to(out)) for path in out.rglob("libf.so")]
                self.assertEqual(["usr/lib/libf.so"], found)
                shutil.rmtree(out)

    def test_program_that_looks_for_the_path_of_a_library_is_refused(self) -> None:
        path = self.root / "libf.so"
        done = self.collect(f"cc -shared -o {path} f.c && cc -o program m.c {path}")
        self.assertNotEqual(0, done.returncode)
        self.assertIn(f"program looks for {path}, a path that the image does not have", done.stderr)


if __name__ == "__main__":
    require("helm-4")
    if sys.argv[1:] != ["--from-source"]:
        PROGRAMS = [Path(program) for program in sys.argv[1:]]
        if not PROGRAMS:
            print("skipped: this build has no programs of a release")
            sys.exit(SKIPPED)
    if reason := image.why_not():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)

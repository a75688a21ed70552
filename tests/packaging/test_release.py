# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The files of a release are the same for every run, and name the source of each library.

Usage: test_release.py BUILD_FOLDER [--image]
"""

import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[2]
HELM = ROOT / ".cache/tools/bin/helm-4"
PATIENCE = 1000.0
BUILD = Path()
IMAGE = False
OUTPUTS = ("aggregator/basind/basind", "aggregator/ctl/basinctl", "client/c/libbasin.so.2")
SKIPPED = 77


def release(folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    image = ["--image"] if IMAGE else []
    return subprocess.run(
        [ROOT / "scripts/release.sh", "--build", BUILD, *image, folder],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def run(*command: str | Path, where: Path = ROOT) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(command, cwd=where, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    (found,) = re.findall(
        r"^project\(Basin VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M
    )
    return str(found)


@functools.cache
def owner(path: str) -> str:
    """The package that dpkg names as the owner of a library, by whichever of its paths it knows."""
    real = os.path.realpath(path)
    for known in (path, real, real.removeprefix("/usr")):
        done = subprocess.run(["dpkg", "-S", known], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split(": ")[0]
    raise AssertionError(f"no package owns {path}")


class Release(unittest.TestCase):
    folder: ClassVar[Path]
    first: ClassVar[Path]
    second: ClassVar[Path]
    sbom: ClassVar[dict[str, Any]]
    wheel: ClassVar[Path]
    licenses: ClassVar[set[str]]
    cleanup: ClassVar[contextlib.ExitStack]

    @classmethod
    def setUpClass(cls) -> None:
        cls.cleanup = contextlib.ExitStack()
        cls.folder = Path(cls.cleanup.enter_context(tempfile.TemporaryDirectory()))
        cls.first, cls.second = cls.folder / "first", cls.folder / "second"
        # Everything that a caller's shell may have different.
        before = os.umask(0o077)
        cls.cleanup.callback(os.umask, before)
        for folder, environment in (
            (cls.first, {"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"}),
            (cls.second, {"TZ": "America/Lima", "LC_ALL": "C"}),
        ):
            done = release(folder, **environment)
            if done.returncode != 0:
                raise AssertionError(f"release.sh failed:\n{done.stdout}{done.stderr}")
            os.umask(before)
        cls.sbom = json.loads((cls.first / f"basin-{version()}.spdx.json").read_text())
        (cls.wheel,) = cls.first.glob("*.whl")
        with tarfile.open(cls.first / "LICENSES.tar.gz") as archive:
            cls.licenses = set(archive.getnames())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.cleanup.close()

    def test_two_runs_give_the_same_bytes(self) -> None:
        sums = (self.first / "SHA256SUMS").read_text()
        self.assertEqual(sums, (self.second / "SHA256SUMS").read_text())
        names = {line.split()[1] for line in sums.splitlines()}
        self.assertEqual({path.name for path in self.first.iterdir()} - {"SHA256SUMS"}, names)
        expected = {
            "LICENSES.tar.gz",
            f"basin-{version()}.spdx.json",
            f"basin-{version()}.tgz",
            self.symbols().name,
            self.wheel.name,
        }
        if IMAGE:
            machine = os.uname().machine
            expected |= {
                "LICENSES-image.tar.gz",
                f"basin-image-{version()}-{machine}.tar",
                f"basin-image-{version()}-symbols-{machine}.tar.gz",
                f"basin-image-{version()}.spdx.json",
            }
        self.assertEqual(expected, names)

    def symbols(self) -> Path:
        return self.first / f"basin-{version()}-symbols-{os.uname().machine}.tar.gz"

    def test_the_symbols_name_the_places_in_the_stripped_programs(self) -> None:
        def facts(program: Path) -> list[str]:
            """What tells that places in one file are places in another."""
            notes = run("readelf", "--notes", "--section-headers", "--wide", program)
            found = re.findall(r"Build ID: (\S+)|\.text +(?:PROGBITS|NOBITS) +(\S+)", notes)
            self.assertEqual(2, len(found))
            return ["".join(fact) for fact in found]

        with tempfile.TemporaryDirectory() as folder:
            run("tar", "-xzf", self.symbols(), "-C", folder)
            with zipfile.ZipFile(self.wheel) as archive:
                archive.extractall(folder)
            self.assertEqual(
                {"basind.debug", "basinctl.debug"},
                {path.name for path in Path(folder, "symbols").iterdir()},
            )
            for output in OUTPUTS[:2]:
                with self.subTest(output):
                    name = Path(output).name
                    symbols = Path(folder, "symbols", f"{name}.debug")
                    (stripped,) = Path(folder).rglob(name)
                    self.assertEqual("", run("nm", stripped))
                    self.assertEqual(facts(symbols), facts(stripped))
                    (place,) = re.findall(r"^(\w+) T main$", run("nm", symbols), re.M)
                    command = ("addr2line", "-f", "-C", "-e")
                    self.assertEqual("main", run(*command, symbols, place).split()[0])
                    self.assertNotIn("main", run(*command, stripped, place).split())

    def test_a_file_that_was_changed_is_found(self) -> None:
        command = ["sha256sum", "--check", "SHA256SUMS"]
        self.assertIn("LICENSES.tar.gz: OK", run(*command, where=self.first))
        for name in [path.name for path in self.first.iterdir() if path.name != "SHA256SUMS"]:
            with self.subTest(name), tempfile.TemporaryDirectory() as scratch:
                changed = Path(scratch) / "release"
                shutil.copytree(self.first, changed)
                content = bytearray((changed / name).read_bytes())
                content[len(content) // 2] ^= 1
                (changed / name).write_bytes(content)
                done = subprocess.run(command, cwd=changed, capture_output=True, text=True)
                self.assertNotEqual(0, done.returncode)
                self.assertIn(f"{name}: FAILED", done.stdout)

    def test_all_places_have_the_version(self) -> None:
        for path, pattern in {
            "client/python/pyproject.toml": r'^version = "(.*)"',
            "helm/basin/Chart.yaml": r'^(?:appVersion|version): "?([\d.]+)"?',
            "Dockerfile": r'image\.version="(.*?)"',
        }.items():
            with self.subTest(path):
                found = re.findall(pattern, (ROOT / path).read_text(), re.M)
                self.assertEqual({version()}, set(found))
        self.assertIn(f"basind {version()}", run(BUILD / OUTPUTS[0], "version"))
        self.assertIn(f"-{version()}-", self.wheel.name)

    def test_the_chart_can_be_installed_and_is_the_tree_s(self) -> None:
        package = self.first / f"basin-{version()}.tgz"
        given = ("--set", "config.grpc.insecure=true")
        of_tree = run(HELM, "template", "basin", ROOT / "helm/basin", *given)
        self.assertEqual(of_tree, run(HELM, "template", "basin", package, *given))

    def test_a_folder_with_files_is_refused(self) -> None:
        done = release(self.first)
        self.assertEqual(1, done.returncode)
        self.assertIn("is not empty. Name another folder.", done.stderr)

    # ---- The SBOM

    def package(self, name: str) -> dict[str, Any]:
        (found,) = [entry for entry in self.sbom["packages"] if entry["name"] == name]
        assert isinstance(found, dict)
        return found

    def relations(self, kind: str, sbom: dict[str, Any] | None = None) -> set[str]:
        """The packages that Basin has this relation to; by default in the list of the wheel."""
        sbom = sbom or self.sbom
        related = {
            entry["relatedSpdxElement"]
            for entry in sbom["relationships"]
            if (entry["spdxElementId"], entry["relationshipType"]) == ("SPDXRef-basin", kind)
        }
        return {entry["name"] for entry in sbom["packages"] if entry["SPDXID"] in related}

    def libraries(self) -> set[str]:
        """What ldd shows of the programs and the library, except the kernel's part."""
        lines = [line for output in OUTPUTS for line in run("ldd", BUILD / output).splitlines()]
        found = {path for line in lines for path in re.findall(r"(/\S+) \(0x", line)}
        self.assertGreater(len(found), 20)
        return found

    def test_it_is_valid(self) -> None:
        from spdx_tools.spdx.parser.error import SPDXParsingError
        from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
        from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

        document = JsonLikeDictParser().parse(self.sbom)
        found = [error.validation_message for error in validate_full_spdx_document(document)]
        self.assertEqual([], found)
        # The validator sees errors.
        broken = json.loads(json.dumps(self.sbom))
        broken["relationships"][0]["relatedSpdxElement"] = "SPDXRef-other"
        self.assertNotEqual([], validate_full_spdx_document(JsonLikeDictParser().parse(broken)))
        del broken["packages"][0]["downloadLocation"]
        with self.assertRaises(SPDXParsingError):
            JsonLikeDictParser().parse(broken)

    def test_every_library_has_an_entry_and_a_licence(self) -> None:
        for path in sorted(self.libraries()):
            with self.subTest(path):
                package = owner(path)
                name, installed = run(
                    "dpkg-query", "--show", "--showformat=${Package} ${Version}", package
                ).split()
                entry = self.package(name)
                self.assertEqual(installed, entry["versionInfo"])
                self.assertIn(path, entry["comment"].split())
                self.assertIn(name, self.relations("DYNAMIC_LINK"))
                self.assertIn(f"licenses/{name}/copyright", self.licenses)
                (reference,) = entry["externalRefs"]
                self.assertTrue(reference["referenceLocator"].startswith("pkg:deb/debian/"))
        self.assertIn("licenses/LICENSE", self.licenses)

    def test_it_names_the_sources_with_the_versions_that_dpkg_says(self) -> None:
        sources = {entry["name"]: entry.get("sourceInfo", "") for entry in self.sbom["packages"]}
        for source in ("grpc", "protobuf", "abseil", "openssl"):
            with self.subTest(source):
                packages = [
                    name
                    for name, text in sources.items()
                    if text.startswith(f"Debian's source package {source} ")
                ]
                self.assertNotEqual([], packages)
                for name in packages:
                    said = run("dpkg-query", "--show", "--showformat=${source:Version}", name)
                    self.assertEqual(f"Debian's source package {source} {said}", sources[name])

    def test_a_library_of_headers_is_in_it(self) -> None:
        self.assertIn("nlohmann-json3-dev", self.relations("STATIC_LINK"))
        self.assertIn("licenses/nlohmann-json3-dev/copyright", self.licenses)

    def test_what_the_wheel_contains_is_in_it(self) -> None:
        owners = {os.path.basename(os.path.realpath(path)): path for path in self.libraries()}
        with zipfile.ZipFile(self.wheel) as archive:
            copied = [name for name in archive.namelist() if "basin_client.libs/lib" in name]
        self.assertGreater(len(copied), 20)
        for name in copied:
            with self.subTest(name):
                library = re.sub(r"^([^.]+)-[0-9a-f]{8}\.", r"\1.", Path(name).name)
                package = owner(owners[library]).partition(":")[0]
                self.assertIn(package, self.relations("CONTAINS"))
        # glibc comes from the system.
        self.assertNotIn("libc6", self.relations("CONTAINS"))

    # ---- The image

    def test_the_image_is_an_oci_archive_and_its_base_is_in_the_list(self) -> None:
        archive = self.first / f"basin-image-{version()}-{os.uname().machine}.tar"
        if not IMAGE:
            self.assertFalse(archive.exists())
            return
        with tarfile.open(archive) as tar:

            def blob(digest: str) -> Any:
                file = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
                assert file is not None
                return json.load(file)

            index = tar.extractfile("index.json")
            assert index is not None
            (entry,) = json.load(index)["manifests"]
            name = entry["annotations"]["org.opencontainers.image.ref.name"]
            self.assertEqual(f"basin:{version()}", name)
            config = blob(blob(entry["digest"])["config"]["digest"])
        self.assertEqual(["/usr/bin/basind"], config["config"]["Entrypoint"])
        self.assertEqual(version(), config["config"]["Labels"]["org.opencontainers.image.version"])
        sbom = json.loads((self.first / f"basin-image-{version()}.spdx.json").read_text())
        contained = self.relations("CONTAINS", sbom)
        self.assertLessEqual({"base-files", "libc6", "netbase", "tzdata", "libstdc++6"}, contained)
        # Its gRPC is that of the root in which it was compiled, and one Abseil is in it.
        (grpc,) = [name for name in contained if name.startswith("libgrpc++")]
        shown = ("dpkg-query", "--show", "--showformat=${Version}", grpc)
        (entry,) = [entry for entry in sbom["packages"] if entry["name"] == grpc]
        self.assertEqual(run(ROOT / "scripts/in-sid.sh", *shown), entry["versionInfo"])
        self.assertEqual(1, len([name for name in contained if name.startswith("libabsl")]))


if __name__ == "__main__":
    needed = ("auditwheel", "scikit_build_core", "spdx_tools")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if not HELM.exists():
        missing.append("helm-4")
    BUILD = Path(sys.argv[1])
    IMAGE = "--image" in sys.argv[2:]
    if IMAGE:
        missing += [tool for tool in ("buildah", "mmdebstrap") if shutil.which(tool) is None]
    if missing:
        print(f"skipped: {', '.join(missing)} not installed; scripts/setup.sh installs it")
        sys.exit(SKIPPED)
    if IMAGE and os.geteuid() != 0:
        print("skipped: only root can make the base of the image")
        sys.exit(SKIPPED)
    if IMAGE and subprocess.run([ROOT / "scripts/in-sid.sh", "true"]).returncode == 75:
        print("skipped: there is no root of Debian sid to compile the image's programs in")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)

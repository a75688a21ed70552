#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Lists what a release contains besides Basin's own code, as an SBOM (SPDX 2.3, JSON).

Usage:
    scripts/make-sbom.py --build build/release basin.spdx.json
    scripts/make-sbom.py --build build/release --wheel W.whl --licenses licenses basin.spdx.json
    scripts/in-sid.sh scripts/make-sbom.py --build build/image --programs basin-image.spdx.json

There is one package for Basin and one for each Debian package that basind, basinctl or libbasin
takes code from: shared libraries as `ldd` shows them, static libraries as the link commands name
them, and libraries of headers only. It must run on the Debian that they were built on. A library
that no Debian package installed has an entry of its own, with its checksum and without a version.
The same input gives the same bytes.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.parse
import uuid
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUTPUTS = {
    "basind": "aggregator/basind/basind",
    "basinctl": "aggregator/ctl/basinctl",
    "basin_c": "client/c/libbasin.so.2",
}
# Targets of CMake that are only headers, which therefore neither ldd nor a link command shows.
HEADERS_ONLY = {"nlohmann_json::nlohmann_json": "/usr/include/nlohmann/json.hpp"}

# Names in Debian's copyright files whose meaning in SPDX is certain.
SPDX_LICENSES = {
    "Apache-2.0": "Apache-2.0",
    "BSD-2-clause": "BSD-2-Clause",
    "BSD-3-clause": "BSD-3-Clause",
    "BSD-3-Clause~Google": "BSD-3-Clause",
    "Expat": "MIT",
    "Zlib": "Zlib",
}
# Packages whose copyright files only people can read.
SPDX_LICENSES_OF_SOURCES = {
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "gcc-16": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",
    "zlib": "Zlib",
}
UNKNOWN = "NOASSERTION"


def fail(sentence: str) -> SystemExit:
    return SystemExit(f"make-sbom: {sentence}")


def run(*command: str | Path) -> str:
    """The output of a command, which must succeed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise fail(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise fail(f"{shlex.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- What the outputs are linked with -----------------------------------------------------------


def shared_libraries(output: Path) -> set[Path]:
    """What the loader needs for it, as ldd shows it: directly or through another library."""
    lines = run("ldd", output).splitlines()
    if missing := [line.split()[0] for line in lines if "not found" in line]:
        raise fail(f"{output} needs {', '.join(missing)}, which this machine does not have")
    # name => path (address), or only the path, which is the loader; linux-vdso is in the kernel.
    return {Path(path) for line in lines for path in re.findall(r"(/\S+) \(0x", line)}


def static_libraries(build: Path, output: str) -> set[Path]:
    """The archives on its link command that were not built here."""
    real = os.path.relpath((build / output).resolve(), build.resolve())
    command = run("ninja", "-C", build, "-t", "commands", "-s", real)
    words = shlex.split(command)
    folders = [Path(word[2:]) for word in words if word.startswith("-L")]
    found = {Path(word) for word in words if word.startswith("/") and word.endswith(".a")}
    for name in {word[2:] for word in words if re.fullmatch(r"-l[\w+.-]+", word)}:
        if (library := find_library(name, folders)) is not None and library.suffix == ".a":
            found.add(library)
    return {path for path in found if not path.is_relative_to(build.resolve())}


def find_library(name: str, folders: Iterable[Path]) -> Path | None:
    """Where the linker finds -lNAME: a shared library before a static one in each folder."""
    for folder in folders:
        for suffix in (".so", ".a"):
            if (path := folder / f"lib{name}{suffix}").exists():
                return path
    for suffix in (".so", ".a"):
        path = Path(run("g++", f"-print-file-name=lib{name}{suffix}").strip())
        if path.is_absolute():
            return path
    return None


def header_libraries(build: Path, target: str) -> set[Path]:
    """A header of each library of headers that the target, or what it links, uses."""
    graph = json.loads((build / "link-graph.json").read_text(encoding="utf-8"))
    links = {entry["target"]: entry["links"] for entry in graph}
    seen: set[str] = set()
    waiting = [target]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += links.get(name, [])
    return {Path(header) for name, header in HEADERS_ONLY.items() if name in seen}


def libraries_in(wheel: Path) -> dict[str, str]:
    """The libraries that auditwheel copied into it: the name there, and the name before."""
    with zipfile.ZipFile(wheel) as archive:
        names = [Path(name) for name in archive.namelist()]
    copied = [name for name in names if name.parent.name.endswith(".libs")]
    # It puts a digest before the first dot, as in libevent_core-2-62ef2b91.1.so.7.0.1.
    return {str(name): re.sub(r"^([^.]+)-[0-9a-f]{8}\.", r"\1.", name.name) for name in copied}


# ---- Where they come from -----------------------------------------------------------------------


@dataclass
class Package:
    """What a library belongs to. `relations`: pairs of a kind and a comment."""

    name: str
    version: str
    source: str = ""
    homepage: str = ""
    architecture: str = ""
    libraries: set[str] = field(default_factory=set)
    relations: set[tuple[str, str]] = field(default_factory=set)
    file: Path | None = None  # The library itself, if no package installed it.


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def spellings(path: Path) -> set[str]:
    """A package may own a file by its path before or after /lib became a link to /usr/lib."""
    found = set()
    for spelled in (str(path), os.path.realpath(path)):
        found |= {spelled, spelled.removeprefix("/usr"), "/usr" + spelled.removeprefix("/usr")}
    return found


def owners(paths: Iterable[Path]) -> dict[Path, str]:
    """The Debian package of each file that has one."""
    spelled = {spelling: path for path in paths for spelling in spellings(path)}
    if not spelled:
        return {}
    # dpkg fails if one spelling has no owner, and prints the others.
    done = subprocess.run(
        ["dpkg-query", "--search", *sorted(spelled)], capture_output=True, text=True
    )
    found = {}
    for line in done.stdout.splitlines():
        packages, _, path = line.rpartition(": ")
        if path in spelled and not line.startswith("diversion "):
            found[spelled[path]] = packages.split(", ")[0]
    return found


def debian_package(name: str) -> Package:
    fields = "${Package}\n${Version}\n${source:Package} ${source:Version}\n${Homepage}\n"
    fields += "${Architecture}\n"
    shown = run("dpkg-query", "--show", f"--showformat={fields}", name).splitlines()
    package, version, source, homepage, architecture = shown
    return Package(package, version, source, homepage, architecture)


class Packages:
    """Every package of the release, by the name that dpkg gives it or the digest of a library."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._owners = owners(paths)
        self._found: dict[str, Package] = {}

    def of(self, path: Path) -> Package:
        # A library that no package installed is identified by its bytes, wherever it was found.
        key = self._owners.get(path) or sha256(path)
        if key not in self._found:
            if path in self._owners:
                self._found[key] = debian_package(key)
            else:
                stem = path.name.partition(".so")[0].removesuffix(".a")
                self._found[key] = Package(stem, UNKNOWN, file=path)
        return self._found[key]

    def add(self, path: Path, kind: str, comment: str) -> None:
        package = self.of(path)
        package.libraries.add(str(path))
        package.relations.add((kind, comment))

    def sorted(self) -> list[Package]:
        return sorted(self._found.values(), key=lambda package: (package.name, package.version))


def collect(build: Path, outputs: dict[str, str], wheel: Path | None) -> Packages:
    linked = []
    for target, output in outputs.items():
        if not (build / output).exists():
            raise fail(f"there is no {build / output}. Build the target {target} first.")
        name = Path(output).name
        linked += [("DYNAMIC_LINK", name, path) for path in shared_libraries(build / output)]
        linked += [("STATIC_LINK", name, path) for path in static_libraries(build, output)]
        linked += [("STATIC_LINK", name, path) for path in header_libraries(build, target)]
    packages = Packages({path for _, _, path in linked})
    for kind, name, path in linked:
        packages.add(path, kind, name)
    if wheel is not None:
        # auditwheel names a copy after the file, not after the link to it.
        names = {path.resolve().name: path for _, _, path in linked}
        for copied, name in libraries_in(wheel).items():
            if name not in names:
                raise fail(f"{wheel.name} contains {copied}, but nothing in {build} needs {name}")
            packages.add(names[name], "CONTAINS", wheel.name)
    return packages


def add_image(packages: list[Package], listing: Path) -> None:
    """Adds what the image contains: the libraries of its programs, except glibc, and the packages
    of its base, of which `listing` has `name version architecture` in each line."""
    for package in packages:
        programs = {("DYNAMIC_LINK", "basind"), ("DYNAMIC_LINK", "basinctl")}
        if package.relations & programs and not package.source.startswith("glibc "):
            package.relations.add(("CONTAINS", "the image"))
    known = {(package.name, package.version): package for package in packages}
    for line in listing.read_text(encoding="utf-8").splitlines():
        name, version, architecture = line.split()
        found = known.get((name, version))
        if found is None:
            found = Package(name, version, architecture=architecture)
            packages.append(found)
        found.relations.add(("CONTAINS", "the base of the image"))


# ---- The entry for each of them -----------------------------------------------------------------


def copyright_file(package: Package) -> Path:
    return Path("/usr/share/doc") / package.name / "copyright"


def declared_license(package: Package) -> str:
    """The licence of most of its files, if its copyright file states it in a known form."""
    if package.source.split(" ")[0] in SPDX_LICENSES_OF_SOURCES:
        return SPDX_LICENSES_OF_SOURCES[package.source.split(" ")[0]]
    path = copyright_file(package)
    if package.file is not None or not package.source or not path.exists():
        return UNKNOWN
    for paragraph in re.split(r"\n\s*\n", path.read_text(encoding="utf-8", errors="replace")):
        if re.search(r"^Files:\s*\*\s*$", paragraph, re.M):
            name = re.search(r"^License:[ \t]*(\S+)[ \t]*$", paragraph, re.M)
            return SPDX_LICENSES.get(name.group(1), UNKNOWN) if name else UNKNOWN
    return UNKNOWN


def distribution() -> dict[str, str]:
    text = Path("/etc/os-release").read_text(encoding="utf-8")
    return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.M))


def purl(package: Package) -> str:
    system = distribution()
    name, version = (urllib.parse.quote(text, safe="") for text in (package.name, package.version))
    place = f"arch={package.architecture}&distro={system['ID']}-{system.get('VERSION_ID', 'sid')}"
    return f"pkg:deb/{system['ID']}/{name}@{version}?{place}"


def identifier(package: Package) -> str:
    """An id may have only letters, digits, dots and dashes, so `+` is spelled out: libstdc++6."""
    version = package.version if package.file is None else sha256(package.file)[:12]
    spelled = f"{package.name}-{version}".replace("+", "plus")
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", spelled)


def external_reference(locator: str) -> dict[str, str]:
    return {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": locator,
    }


def description(package: Package) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "SPDXID": identifier(package),
        "name": package.name,
        "versionInfo": package.version,
        "supplier": UNKNOWN,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": declared_license(package),
        "copyrightText": UNKNOWN,
    }
    if package.libraries:
        entry["comment"] = "Files: " + " ".join(sorted(package.libraries))
    if package.homepage:
        entry["homepage"] = package.homepage
    if package.file is not None:
        entry["packageFileName"] = package.file.name
        entry["checksums"] = [{"algorithm": "SHA256", "checksumValue": sha256(package.file)}]
        return entry
    entry["supplier"] = "Organization: Debian"
    entry["externalRefs"] = [external_reference(purl(package))]
    if package.source:
        entry["sourceInfo"] = f"Debian's source package {package.source}"
    return entry


def basin(version: str) -> dict[str, Any]:
    return {
        "SPDXID": "SPDXRef-basin",
        "name": "basin",
        "versionInfo": version,
        "supplier": "Organization: The Basin Authors",
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "Copyright 2026 The Basin Authors",
        "primaryPackagePurpose": "APPLICATION",
        "externalRefs": [external_reference(f"pkg:generic/basin@{version}")],
    }


def relationships(packages: list[Package]) -> list[dict[str, str]]:
    found = [
        {
            "spdxElementId": "SPDXRef-DOCUMENT",
            "relationshipType": "DESCRIBES",
            "relatedSpdxElement": "SPDXRef-basin",
        }
    ]
    for package in packages:
        for kind in sorted({kind for kind, _ in package.relations}):
            where = sorted(comment for other, comment in package.relations if other == kind)
            found.append(
                {
                    "spdxElementId": "SPDXRef-basin",
                    "relationshipType": kind,
                    "relatedSpdxElement": identifier(package),
                    "comment": ", ".join(where),
                }
            )
    return found


def document(packages: list[Package], version: str, epoch: int) -> dict[str, Any]:
    content = {
        "packages": [basin(version), *map(description, packages)],
        "relationships": relationships(packages),
    }
    # The name must be unique to the content, so it is computed from it.
    unique = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([epoch, content], sort_keys=True))
    created = datetime.datetime.fromtimestamp(epoch, datetime.UTC)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"basin-{version}",
        "documentNamespace": f"urn:uuid:{unique}",
        "creationInfo": {
            "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Organization: The Basin Authors", f"Tool: make-sbom-{version}"],
        },
        **content,
    }


# ---- Licences -----------------------------------------------------------------------------------


def copy_licenses(packages: list[Package], folder: Path) -> None:
    """Basin's licence, the copyright file of each package, and the texts that those refer to."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    common = set()
    for package in packages:
        file = copyright_file(package)
        if package.file is not None or not file.exists():
            print(
                f"make-sbom: there is no licence text for {package.file or package.name} on this "
                "machine. Add it by hand before you publish the release.",
                file=sys.stderr,
            )
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        common |= set(re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", text))
        (folder / package.name).mkdir(exist_ok=True)
        shutil.copyfile(file, folder / package.name / "copyright")
    (folder / "common-licenses").mkdir(exist_ok=True)
    for name in sorted(common):
        source = Path("/usr/share/common-licenses") / name
        if source.exists():
            shutil.copyfile(source, folder / "common-licenses" / name)


def project_version() -> str:
    """The version in CMakeLists.txt, which is the one that all other places repeat."""
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.search(r"^project\(Basin VERSION ([\d.]+)", text, re.M)
    if found is None:
        raise fail("CMakeLists.txt has no line `project(Basin VERSION ...`")
    return found.group(1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, metavar="FOLDER", required=True)
    parser.add_argument(
        "--programs", action="store_true", help="list what basind and basinctl need, not libbasin"
    )
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="also list what it contains")
    parser.add_argument(
        "--image-packages",
        type=Path,
        metavar="FILE",
        help="also list these packages of the image's base: `name version architecture` per line",
    )
    parser.add_argument(
        "--licenses", type=Path, metavar="FOLDER", help="copy the licences of all packages there"
    )
    parser.add_argument("output", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if not (arguments.build / "build.ninja").exists():
        raise fail(f"{arguments.build} is not a build folder of Ninja: it has no build.ninja")
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch.isdecimal():
        epoch = run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()

    outputs = {
        target: output
        for target, output in OUTPUTS.items()
        if not arguments.programs or target != "basin_c"
    }
    packages = collect(arguments.build, outputs, arguments.wheel).sorted()
    if arguments.image_packages is not None:
        add_image(packages, arguments.image_packages)
        packages.sort(key=lambda package: (package.name, package.version))
    if arguments.licenses is not None:
        copy_licenses(packages, arguments.licenses)
    text = json.dumps(document(packages, project_version(), int(epoch)), indent=2)
    arguments.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks CMake's link lines against the layers, and finds tests that are not built or run.

Both read link-graph.json, which cmake/LinkGraph.cmake writes when the build is configured.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from layers import PRODUCT_FOLDERS, layer_of, may_use, within
from sources import files


@dataclass(frozen=True)
class Target:
    """A CMake target. `sources` are relative to the root, or absolute when generated."""

    name: str
    kind: str
    folder: str
    sources: tuple[str, ...]
    links: tuple[str, ...]


def read_graph(path: Path, root: Path) -> list[Target]:
    targets = []
    for entry in json.loads(path.read_text(encoding="utf-8")):
        sources = []
        for source in entry["sources"]:
            absolute = os.path.normpath(root / entry["folder"] / source)
            inside = within(absolute, str(root)) and not within(absolute, str(root / "build"))
            sources.append(os.path.relpath(absolute, root) if inside else absolute)
        links = [re.sub(r"^\$<LINK_ONLY:(.*)>$", r"\1", link) for link in entry["links"]]
        # CMake records the folder of a link line beside it, which is not a library.
        links = [link for link in links if not link.startswith("::@")]
        targets.append(
            Target(entry["target"], entry["type"], entry["folder"], tuple(sources), tuple(links))
        )
    return targets


def _home(target: Target) -> set[str]:
    """The folders that a target's own sources lie in; its CMake folder if it has none."""
    own = {os.path.dirname(source) for source in target.sources if not os.path.isabs(source)}
    return {folder for folder in own if folder.split("/")[0] in PRODUCT_FOLDERS} or {target.folder}


def layering_violations(targets: list[Target]) -> Iterator[str]:
    homes = {target.name: _home(target) for target in targets}
    for target in targets:
        if target.folder.split("/")[0] not in PRODUCT_FOLDERS or target.kind == "UTILITY":
            continue
        layers = {layer_of(home) for home in homes[target.name]}
        if len(layers) != 1:
            yield f"{target.name}: its sources lie in several layers: {sorted(homes[target.name])}"
            continue
        layer = layers.pop()
        if layer is None:
            yield f"{target.name}: {target.folder} belongs to no layer"
            continue
        for link in target.links:
            if link in homes:
                allowed = all(may_use(layer, home) for home in homes[link])
            else:
                allowed = link.startswith(layer.links) if layer.links else False
            if not allowed:
                yield f"{target.name}: {layer.folder} may not link {link}"


def _ctest_text(build: Path) -> str:
    """Everything that ctest runs."""
    return "\n".join(
        path.read_text(encoding="utf-8") for path in sorted(build.rglob("CTestTestfile.cmake"))
    )


def registration_violations(root: Path, targets: list[Target], ctest: str) -> Iterator[str]:
    """Test files that no target builds, or that ctest never runs.

    ctest: the text of the build's CTestTestfile.cmake files.
    """
    users: dict[str, list[Target]] = {}
    for target in targets:
        for source in target.sources:
            users.setdefault(source, []).append(target)

    for path in files(root, ["tests"]):
        name = os.path.basename(path)
        if re.fullmatch(r"test_.*\.py", name):
            if not re.search(rf"[\"/]{re.escape(path)}[\"\s]", ctest):
                yield f"{path}: ctest does not run it; add basin_python_test to its CMakeLists.txt"
        elif re.fullmatch(r".*_(test|fuzz|bench)\.cc", name):
            built_by = users.get(path, [])
            if not built_by:
                yield f"{path}: no target builds it; register it in its CMakeLists.txt"
            elif not name.endswith("_bench.cc") and not any(
                re.search(rf"\b{re.escape(target.name)}\b", ctest) for target in built_by
            ):
                yield f"{path}: ctest does not run {built_by[0].name}"


def registration_violations_of_build(root: Path, build: Path) -> Iterator[str]:
    targets = read_graph(build / "link-graph.json", root)
    yield from registration_violations(root, targets, _ctest_text(build))

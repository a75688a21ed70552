# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The link lines of the build follow the layers, and planted violations are found.

Usage: test_links.py BUILD_FOLDER
"""

import subprocess
import sys
import unittest
from pathlib import Path

import links
from links import Target
from planted_tree import ROOT, PlantedTree

BUILD = Path()


def library(name: str, source: str, *linked: str) -> Target:
    return Target(name, "STATIC_LIBRARY", source.rsplit("/", 1)[0], (source,), linked)


class TheBuild(unittest.TestCase):
    maxDiff = None

    def test_follows_the_layers(self) -> None:
        targets = links.read_graph(BUILD / "link-graph.json", ROOT)
        self.assertGreater(len(targets), 0)
        self.assertEqual([], list(links.layering_violations(targets)))


class PlantedBreaches(PlantedTree):
    KERNELS = library("kernels", "kernels/a.cc", "absl::status", "hwy::hwy")
    CORE = library("core", "aggregator/core/a.cc", "absl::status")

    def test_clean_graph(self) -> None:
        engine = library("engine", "aggregator/engine/a.cc", "core", "kernels", "absl::time")
        found = list(links.layering_violations([self.KERNELS, self.CORE, engine]))
        self.assertEqual([], found)

    def test_core_links_kernels(self) -> None:
        core = library("core", "aggregator/core/a.cc", "kernels")
        found = list(links.layering_violations([self.KERNELS, core]))
        self.assert_found(found, "core", "may not link kernels")

    def test_core_links_grpc(self) -> None:
        core = library("core", "aggregator/core/a.cc", "gRPC::grpc++")
        self.assert_found(list(links.layering_violations([core])), "core", "gRPC::grpc++")

    def test_core_links_threads(self) -> None:
        core = library("core", "client/core/a.cc", "Threads::Threads")
        self.assert_found(list(links.layering_violations([core])), "core", "Threads")

    def test_unknown_library(self) -> None:
        kernels = library("kernels", "kernels/a.cc", "-lsomething")
        self.assert_found(list(links.layering_violations([kernels])), "kernels", "-lsomething")

    def test_target_across_layers(self) -> None:
        both = Target(
            "both",
            "STATIC_LIBRARY",
            "aggregator",
            ("aggregator/core/a.cc", "aggregator/engine/b.cc"),
            (),
        )
        self.assert_found(list(links.layering_violations([both])), "both", "several layers")

    def test_the_graph_that_cmake_writes(self) -> None:
        self.plant(
            "CMakeLists.txt",
            "cmake_minimum_required(VERSION 3.22)\nproject(Planted LANGUAGES NONE)\n"
            f'include("{ROOT}/cmake/LinkGraph.cmake")\n'
            "add_subdirectory(kernels)\nadd_subdirectory(aggregator/core)\n"
            "basin_write_link_graph()\n",
        )
        self.plant("kernels/CMakeLists.txt", "add_library(kernels INTERFACE a.h)\n")
        self.plant("kernels/a.h", "")
        self.plant(
            "aggregator/core/CMakeLists.txt",
            "add_library(core INTERFACE b.h)\ntarget_link_libraries(core INTERFACE kernels)\n",
        )
        self.plant("aggregator/core/b.h", "")
        build = self.root / "build"
        subprocess.run(
            ["cmake", "-G", "Ninja", "-S", self.root, "-B", build],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        targets = links.read_graph(build / "link-graph.json", self.root)
        self.assertEqual(["kernels", "core"], [target.name for target in targets])
        found = list(links.layering_violations(targets))
        self.assert_found(found, "core", "aggregator/core may not link kernels")


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)

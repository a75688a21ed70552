# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The include lines of the tree follow the layers, and planted violations are found."""

import unittest

import includes
from planted_tree import ROOT, PlantedTree


class TheTree(unittest.TestCase):
    maxDiff = None

    def test_follows_the_layers(self) -> None:
        self.assertEqual([], list(includes.violations(ROOT)))

    def test_is_not_empty(self) -> None:
        self.assertTrue((ROOT / "protocol/dtype.h").exists())


class PlantedBreaches(PlantedTree):
    def one(self, path: str, text: str, part: str) -> None:
        self.plant(path, text)
        self.assert_found(list(includes.violations(self.root)), path, part)

    def none(self, path: str, text: str) -> None:
        self.plant(path, text)
        self.assertEqual([], list(includes.violations(self.root)))

    def test_upward_include(self) -> None:
        self.one("kernels/a.cc", '#include "aggregator/core/round.h"\n', "may not include")

    def test_core_may_not_see_kernels(self) -> None:
        self.one("aggregator/core/a.cc", '#include "kernels/reducer.h"\n', "may not include")

    def test_core_may_not_see_the_wire(self) -> None:
        self.one("client/core/a.h", '#include "proto/wire/frame.h"\n', "may not include")

    def test_the_two_sides_do_not_see_each_other(self) -> None:
        self.one("client/transport/a.cc", '#include "aggregator/core/round.h"\n', "may not include")

    def test_engine_may_not_see_transport(self) -> None:
        self.one("aggregator/engine/a.h", '#include "aggregator/transport/server.h"\n', "may not")

    def test_grpc_below_transport(self) -> None:
        self.one("aggregator/engine/a.cc", "#include <grpcpp/grpcpp.h>\n", "may not include")

    def test_grpc_in_the_clients_runner(self) -> None:
        self.one("client/transport/a.cc", "#include <grpcpp/grpcpp.h>\n", "may not include")

    def test_grpc_in_core(self) -> None:
        self.one("aggregator/core/a.cc", '#include "grpcpp/grpcpp.h"\n', "may not include")

    def test_protobuf_classes_outside_wire(self) -> None:
        self.one("aggregator/engine/a.cc", '#include "proto/basin/v1/a.pb.h"\n', "protobuf")

    def test_absl_in_public_cpp_headers(self) -> None:
        self.one("client/cpp/a.h", '#include "absl/status/status.h"\n', "may not include")

    def test_relative_include(self) -> None:
        self.one("kernels/a.cc", '#include "../protocol/dtype.h"\n', "rooted")

    def test_folder_without_layer(self) -> None:
        self.one("aggregator/surprise/a.cc", "int a;\n", "no layer")

    def test_iostream_in_a_library(self) -> None:
        self.one("kernels/a.cc", "#include <iostream>\n", "iostream")

    def test_conditional_for_cuda_in_common_code(self) -> None:
        self.one("kernels/a.cc", "#ifdef BASIN_HAVE_CUDA\n#endif\n", "chosen by file")
        self.plant("kernels/a.cc", "#if defined(__NVCC__)\n#endif\n")
        self.assert_found(list(includes.violations(self.root)), "kernels/a.cc", "chosen by file")

    def test_conditional_code_in_a_core(self) -> None:
        self.one("client/core/a.cc", "#if defined(__x86_64__)\n#endif\n", "no conditional")

    def test_impure_headers_in_a_core(self) -> None:
        for header in (
            "thread mutex chrono random iostream unordered_map unordered_set atomic ctime future"
            " condition_variable sstream fstream unistd.h sys/time.h"
        ).split():
            with self.subTest(header):
                self.plant("aggregator/core/a.cc", f"#include <{header}>\n")
                self.assertEqual(1, len(list(includes.violations(self.root))))

    def test_impure_abseil_in_a_core(self) -> None:
        for header in (
            "time/clock.h synchronization/mutex.h random/random.h container/flat_hash_map.h"
            " container/node_hash_set.h hash/hash.h flags/flag.h"
        ).split():
            with self.subTest(header):
                self.plant("client/core/a.cc", f'#include "absl/{header}"\n')
                self.assertEqual(1, len(list(includes.violations(self.root))))

    def test_impure_names_in_a_core(self) -> None:
        for code in (
            "auto t = absl::Now();",
            "std::unordered_map<int, int> m;",
            'const char* e = getenv("A");',
            "int r = rand();",
            "auto now = time(nullptr);",
            "thread_local int depth = 0;",
            "absl::flat_hash_map<int, int> m;",
        ):
            with self.subTest(code):
                self.plant("aggregator/core/a.cc", f"void F() {{\n  {code}\n}}\n")
                found = list(includes.violations(self.root))
                self.assert_found(found, "aggregator/core/a.cc:2", "pure")

    def test_what_is_allowed_stays_allowed(self) -> None:
        self.none(
            "aggregator/core/a.h",
            "#ifndef BASIN_AGGREGATOR_CORE_A_H_\n#define BASIN_AGGREGATOR_CORE_A_H_\n"
            "// Never <thread>; std::mutex and absl::Now() are for others. Why? time (it passes).\n"
            '#include <map>\n#include <vector>\n#include "absl/status/status.h"\n'
            '#include "absl/time/time.h"\n#include "aggregator/core/b.h"\n'
            '#include "protocol/ids.h"\n'
            'inline const char* Text() { return "rand() and std::thread"; }\n#endif\n',
        )
        self.none("kernels/a.cc", "#include <immintrin.h>\n#include <hwy/highway.h>\n")
        self.none("aggregator/transport/a.cc", "#include <grpcpp/grpcpp.h>\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)

# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# What peers.py computes from logs and results; it starts no process.
basin_python_test(bench_peers_test SCRIPT peers/test_peers_bench.py LABELS tree)

# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# A short run checks that it still works; its numbers are for docs/client.md.
basin_python_test(bench_footprint_test SCRIPT footprint.py
  ARGS $<TARGET_FILE:basind> $<TARGET_FILE:basin_c> --seconds 0.1 --mib 8 LABELS long)

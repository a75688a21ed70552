# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# A short run checks that it still works; its numbers are for docs/runbooks.md.
basin_python_test(bench_standby_test SCRIPT standby/hand_over.py
  ARGS $<TARGET_FILE:basind> $<TARGET_FILE:basinctl> $<TARGET_FILE:oracle_trainer> --times 2
  LABELS long)

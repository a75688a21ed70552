#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -uo pipefail

usage() {
  cat <<'HELP'
Builds and runs the tests of the CUDA backend. It needs only a GPU, nvcc, a C++ compiler and CMake,
none of Basin's other dependencies, and no network.

  contract   the contract suite and the golden vectors, bit for bit against the scalar reference
  sanitizer  part of that under compute-sanitizer (memcheck, racecheck, synccheck), if it is
             installed and allowed to run
  bench      bandwidth of the reduction, as a share of the device's own copy bandwidth

usage: scripts/test-gpu.sh [--build DIR] [--arch LIST] [--build-only] [--no-sanitizer] [--no-bench]

  --build DIR    where to build (default: build/gpu)
  --arch LIST    CUDA architectures, as CMake takes them (default: all shipped ones)
  --build-only   stop after the build; needs no GPU

All output goes to the terminal and to DIR/report.txt.
Exit status: 0 passed, 1 failed, 2 usage, 77 built, but there is no GPU.

examples:
  scripts/test-gpu.sh --arch native    # quick: only for this machine's GPU
  scripts/test-gpu.sh                  # all shipped architectures
HELP
}

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="$root/build/gpu"
arch=""
build_only=false
with_sanitizer=true
with_bench=true
while (($#)); do
  case "$1" in
    --build | --arch)
      if [[ -z "${2-}" ]]; then
        echo "test-gpu: $1 needs a value" >&2
        exit 2
      fi
      if [[ "$1" == --build ]]; then build="$2"; else arch="$2"; fi
      shift
      ;;
    --build-only) build_only=true ;;
    --no-sanitizer) with_sanitizer=false ;;
    --no-bench) with_bench=false ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      echo "test-gpu: unknown argument: $1 (see --help)" >&2
      exit 2
      ;;
  esac
  shift
done

mkdir -p "$build"
report="$build/report.txt"
: >"$report"
say() { echo "$@" | tee -a "$report"; }

# Runs a command, shows and keeps its output, and returns its exit status.
run() {
  "$@" 2>&1 | tee -a "$report"
  return "${PIPESTATUS[0]}"
}

configure=(cmake -S "$root/tests/kernels/cuda/standalone" -B "$build")
[[ -n "$arch" ]] && configure+=("-DCMAKE_CUDA_ARCHITECTURES=$arch")
say "== build"
run "${configure[@]}" || exit 1
run cmake --build "$build" --parallel "$(nproc)" || exit 1
"$build_only" && exit 0

say "== contract"
if command -v nvidia-smi >/dev/null; then
  run nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
fi
run "$build/cuda_contract" "--golden=$root/tests/golden"
status=$?
if ((status == 77)); then
  exit 77
fi

# A tool that cannot run (a container may forbid it) is skipped, with its own message as the reason.
# A tool that reports an error is a failure.
sanitize() {
  local tool="$1" log="$build/sanitizer-$1.txt"
  compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/cuda_contract" --quick \
    "--golden=$root/tests/golden" >"$log" 2>&1
  local code=$?
  if grep -q "ERROR SUMMARY: 0 errors\|RACECHECK SUMMARY: 0 hazards" "$log" && ((code == 0)); then
    say "$tool: no errors ($(grep -c ' ok$' "$log") checks)"
  elif grep -q "ERROR SUMMARY\|RACECHECK SUMMARY" "$log"; then
    run tail -n 40 "$log"
    say "$tool: failed"
    status=1
  else
    say "$tool: skipped: $(grep -v '^$' "$log" | tail -n 1)"
  fi
}

if "$with_sanitizer"; then
  say "== sanitizer"
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do sanitize "$tool"; done
  else
    say "skipped: compute-sanitizer is not installed"
  fi
fi

if "$with_bench"; then
  say "== bench"
  run "$build/cuda_bench" || status=1
fi

if ((status == 0)); then say "== passed"; else say "== failed"; fi
exit "$((status != 0))"

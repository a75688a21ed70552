#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Builds Basin and shows it at work.

There is no service to run yet, so the demonstration is the simulator: whole training jobs, with
the real state machines of the aggregator and of the clients, on a simulated network and clock, with
faults that a seed decides. The same seed gives the same run.

usage: scripts/demo.sh [--help] [ARGUMENT...]

  ARGUMENT...  handed to basin-simulate as they are; `scripts/demo.sh --simulator-help` lists them

examples:
  scripts/demo.sh                     # a run that the simulator chooses
  scripts/demo.sh --seed 7            # the run of seed 7
HELP
}

arguments=()
for argument in "$@"; do
  case "$argument" in
    --help | -h)
      usage
      exit 0
      ;;
    --simulator-help) arguments+=(--help) ;;
    *) arguments+=("$argument") ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh --check --no-python >/dev/null || scripts/setup.sh --no-python

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
echo "demo: building (the first time takes minutes)"
fail() { # what
  tail -n 30 "$log" >&2
  echo "demo: $1" >&2
  exit 1
}
cmake --preset release >"$log" 2>&1 || fail "the build could not be configured"
if ! ninja -C build/release -t query basin-simulate >/dev/null 2>&1; then
  : >"$log"
  fail "there is nothing to show yet: this version has no simulator"
fi
ninja -C build/release basin-simulate >"$log" 2>&1 || fail "the simulator could not be built"
simulator="$(find build/release -name basin-simulate -type f -perm -u+x -print -quit)"
"$simulator" "${arguments[@]}"

#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Builds Basin and shows it at work: an aggregator and four workers on this machine train a small
network on real handwritten digits, and end with the same parameters, bit for bit.

usage: scripts/demo.sh [--workers N] [ARGUMENT...]
       scripts/demo.sh --simulator [ARGUMENT...]

  --workers N   so many workers instead of four
  --simulator   instead: whole training jobs with the real state machines of the aggregator and of
                the clients, on a simulated network and clock, with faults that a seed decides
  ARGUMENT...   handed to examples/digits.py, or to basin-simulate; both know --help

examples:
  scripts/demo.sh
  scripts/demo.sh --check               # and compare with one process on the same batches
  scripts/demo.sh --kill                # a worker is killed in mid-run, the others go on
  scripts/demo.sh --add                 # a worker is added in mid-run, with the others' state
  scripts/demo.sh --add --kill          # both
  scripts/demo.sh --simulator --seed 7  # the simulated run of seed 7
HELP
}

workers=4
simulator=false
case "${1-}" in
  --help | -h)
    usage
    exit 0
    ;;
  --simulator)
    simulator=true
    shift
    ;;
  --workers)
    workers="${2:?demo: --workers needs a number}"
    shift 2
    ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
setup=()
"$simulator" && setup=(--no-python)
scripts/setup.sh --check "${setup[@]}" >/dev/null || scripts/setup.sh "${setup[@]}"

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
fail() { # what
  tail -n 30 "$log" >&2
  echo "demo: $1" >&2
  exit 1
}
build() { # targets
  echo "demo: building (the first time takes minutes)"
  cmake --preset release >"$log" 2>&1 || fail "the build could not be configured"
  ninja -C build/release "$@" >"$log" 2>&1 || fail "the build has failed"
}

if "$simulator"; then
  build basin-simulate
  found="$(find build/release -name basin-simulate -type f -perm -u+x -print -quit)"
  "$found" "$@"
  exit
fi
build basind basinctl basin_c
export PYTHONPATH="$PWD/client/python${PYTHONPATH:+:$PYTHONPATH}"
least="$workers"
[[ " $* " == *" --kill "* ]] && least=$((workers - 1))
most="$workers"
[[ " $* " == *" --add "* ]] && most=$((workers + 1))
.venv/bin/python3 -m basin.launch --workers "$workers" --min-workers "$least" \
  --max-workers "$most" -- .venv/bin/python3 examples/digits.py "$@"

#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Builds Basin and runs a demonstration: an aggregator and four workers on this machine train a small
network on handwritten digits, and end with the same parameters, bit for bit.

usage: scripts/demo.sh [--workers N] [--shards N [--kill-shard]] [ARGUMENT...]
       scripts/demo.sh --simulator [ARGUMENT...]

  --workers N   number of workers (default: 4)
  --shards N    train twice, with one aggregator and with N shards beside it, which hold and add up
                equal parts of the gradients; fails unless both runs end with the same parameters
  --kill-shard  send SIGKILL to the last shard in the middle of its run
  --simulator   run whole training jobs with the real state machines of aggregator and clients on a
                simulated network and clock instead, with faults that depend on a seed
  ARGUMENT...   passed to examples/digits.py, or to basin-simulate; both have --help

examples:
  scripts/demo.sh
  scripts/demo.sh --check               # also compares with one process on the same batches
  scripts/demo.sh --kill                # kills a worker during the run; the others continue
  scripts/demo.sh --add                 # adds a worker during the run, with the others' state
  scripts/demo.sh --add --kill          # both
  scripts/demo.sh --shards 2            # two shards; compares with a run without them
  scripts/demo.sh --shards 2 --kill-shard  # and one of the two is killed
  scripts/demo.sh --simulator --seed 7  # the simulated run of seed 7
HELP
}

workers=4
shards=0
simulator=false
kill_shard=false
fail() {
  echo "demo: $1" >&2
  exit 1
}
case "${1-}" in
  --help | -h)
    usage
    exit 0
    ;;
  --simulator)
    simulator=true
    shift
    ;;
esac
arguments=()
if "$simulator"; then
  arguments=("$@")
  set --
fi
while (($# > 0)); do
  case "$1" in
    --workers | --shards)
      [[ "${2-}" =~ ^[1-9][0-9]*$ ]] || fail "$1 needs a number"
      [[ "$1" == --workers ]] && workers="$2" || shards="$2"
      shift
      ;;
    --kill-shard) kill_shard=true ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
set -- "${arguments[@]}"
if "$kill_shard" && ((shards == 0)); then
  fail "--kill-shard needs --shards N"
fi
if ((shards > 0)) && [[ " $* " == *" --kill "* || " $* " == *" --add "* ]]; then
  fail "--shards compares the parameters of two runs, and --kill and --add change what is added up"
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
setup=(--demo)
"$simulator" && setup=(--no-python)  # It is among the tests.
scripts/setup.sh --check "${setup[@]}" >/dev/null || scripts/setup.sh "${setup[@]}"

# Trees in different folders share the cache of compilations.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
# Everything but the demonstration itself goes to standard error.
build() { # preset targets
  echo "demo: building ${*:2} (the first time takes minutes)" >&2
  cmake --preset "$1" >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    echo "demo: the build could not be configured" >&2
    exit 1
  }
  NINJA_STATUS="demo: %f of %t done, %e s: " ninja -C "build/$1" "${@:2}" >&2 || {
    echo "demo: the build has failed" >&2
    exit 1
  }
}

if "$simulator"; then
  build release basin-simulate
  found="$(find build/release -name basin-simulate -type f -perm -u+x -print -quit)"
  "$found" "$@"
  exit
fi
build demo basind basinctl basin_c
export PYTHONPATH="$PWD/client/python${PYTHONPATH:+:$PYTHONPATH}"
if ((shards > 0)); then
  how=(--workers "$workers" --shards "$shards")
  "$kill_shard" && how+=(--kill-shard)
  exec .venv/bin/python3 scripts/demo-shards.py "${how[@]}" -- "$@"
fi
least="$workers"
[[ " $* " == *" --kill "* ]] && least=$((workers - 1))
most="$workers"
[[ " $* " == *" --add "* ]] && most=$((workers + 1))
.venv/bin/python3 -m basin.launch --workers "$workers" --min-workers "$least" \
  --max-workers "$most" -- .venv/bin/python3 examples/digits.py "$@"

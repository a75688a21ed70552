#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

case "${1-}" in
  '') ;;
  --help | -h)
    echo "Formats all C++ (clang-format 14) and Python (ruff) of the tree in place."
    echo
    echo "usage: scripts/format.sh [FILE...]    formats only these files, if any are given"
    exit 0
    ;;
  -*)
    echo "format: unknown argument: $1 (see --help)" >&2
    exit 2
    ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Arguments are relative to the root of the tree, as git prints them.
git ls-files -co --exclude-standard --deduplicate -- "$@" | while read -r file; do
  [[ -f "$file" ]] || continue
  case "$file" in
    *.h | *.cc | *.cu | *.cuh) clang-format-14 -i "$file" ;;
    *.py) .venv/bin/ruff format --quiet --no-cache "$file" ;;
  esac
done

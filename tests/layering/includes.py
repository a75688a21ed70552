# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks the include lines against the layers, and the purity of the cores."""

import re
from collections.abc import Iterator
from pathlib import Path

from layers import PRODUCT_FOLDERS, Layer, layer_of, may_use
from sources import blank_comments_and_literals, cpp_files

_INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
_CONDITIONAL = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b\s*(.*)")
_ACCELERATOR = re.compile(r"CUDA|NVCC|NCCL|\bHIP|_HIP|ROCM|GPU", re.I)

# Patterns that make a core depend on more than its arguments: threads, clocks, randomness,
# I/O, and the order of elements in a hash table.
_IMPURE_STANDARD = set(
    "thread mutex shared_mutex condition_variable atomic future chrono ctime random iostream"
    " istream ostream fstream streambuf sstream iomanip cstdio print syncstream filesystem locale"
    " clocale csignal unordered_map unordered_set barrier latch semaphore stop_token execution"
    " coroutine memory_resource".split()
)
_IMPURE_ABSL = re.compile(
    r"absl/(synchronization|random|flags|log|debugging|hash|base/call_once|time/clock\.h"
    r"|container/(flat|node)_hash)"
)
_IMPURE_NAME = re.compile(
    r"\b(?:absl::(?:Now|Mutex|SleepFor|GetCurrentTimeNanos|(?:flat|node)_hash_\w+)"
    r"|std::(?:unordered_\w+|hash|thread|mutex|chrono|random_device|rand|getenv|time|clock)"
    r"|(?:getenv|rand|srand|clock_gettime|gettimeofday|printf|fprintf|time)(?=\s*\()"
    r"|thread_local|volatile)\b"
)


def pure_violation(line: str) -> str | None:
    """Why a line (with comments blanked) does not belong in a core, or None."""
    include = _INCLUDE.match(line)
    if include:
        header = include.group(1) or include.group(2)
        if header in _IMPURE_STANDARD or _IMPURE_ABSL.match(header):
            return f"a core is pure and may not include <{header}>"
        if include.group(2) and "." in header:
            return f"a core sees the C++ library only, not <{header}>"
    name = _IMPURE_NAME.search(line)
    return f"a core is pure and may not name {name.group()}" if name else None


def _include_violation(path: str, layer: Layer, line: str) -> str | None:
    include = _INCLUDE.match(line)
    if not include:
        return None
    header = include.group(1) or include.group(2)
    if header.startswith("."):
        return f'includes are rooted at the repository root: "{header}"'
    if re.search(r"\.(grpc\.)?pb\.h$", header):
        return None if layer.messages else f"{layer.folder} may not see protobuf classes: {header}"
    if header.split("/")[0] in PRODUCT_FOLDERS and "/" in header:
        return None if may_use(layer, header) else f"{layer.folder} may not include {header}"
    if include.group(2) and "/" not in header and "." not in header:
        if header == "iostream":
            return "libraries may not include <iostream>"
        return None  # the C++ library
    if header.startswith(layer.headers):
        return None
    if include.group(2) and not re.match(r"(absl|grpc|grpcpp|google|hwy|gtest|gmock)/", header):
        return None  # system headers such as <sys/mman.h>: pure_violation() keeps cores from them
    return f"{layer.folder} may not include {header}"


def _conditional_violation(path: str, layer: Layer, line: str) -> str | None:
    conditional = _CONDITIONAL.match(line)
    if not conditional or layer.folder == "kernels/cuda":
        return None
    condition = conditional.group(1)
    # The guard of a header has the names of its folders, which may be those of an accelerator.
    if condition == re.sub(r"[^A-Z0-9]", "_", f"BASIN_{path}_".upper()):
        return None
    if _ACCELERATOR.search(condition):
        return f"variants are chosen by file and CMake, not by #if: {condition}"
    return f"a core has no conditional code: {condition}" if layer.pure else None


def violations(root: Path) -> Iterator[str]:
    """Yields "path:line: what is wrong" for every violation below `root`."""
    for path in cpp_files(root, PRODUCT_FOLDERS):
        layer = layer_of(path)
        if layer is None:
            yield f"{path}:1: belongs to no layer; add its folder to tests/layering/layers.py"
            continue
        text = blank_comments_and_literals((root / path).read_text(encoding="utf-8"))
        for number, line in enumerate(text.splitlines(), 1):
            found = _include_violation(path, layer, line) or _conditional_violation(
                path, layer, line
            )
            if not found and layer.pure:
                found = pure_violation(line)
            if found:
                yield f"{path}:{number}: {found}"

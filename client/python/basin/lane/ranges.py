# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Sets of positions as half-open ranges. A function returns them in ascending order, apart from
each other, and takes them in any order, also overlapping."""

from collections.abc import Iterable

Range = tuple[int, int]


def union(ranges: Iterable[Range]) -> list[Range]:
    merged: list[Range] = []
    for begin, end in sorted(ranges):
        if begin >= end:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def without(ranges: Iterable[Range], removed: Iterable[Range]) -> list[Range]:
    """The positions of `ranges` that are not in `removed`."""
    holes = union(removed)
    left: list[Range] = []
    hole = 0
    for begin, end in union(ranges):
        while hole < len(holes) and holes[hole][1] <= begin:
            hole += 1
        at = hole
        while at < len(holes) and holes[at][0] < end:
            if begin < holes[at][0]:
                left.append((begin, holes[at][0]))
            begin = holes[at][1]
            at += 1
        if begin < end:
            left.append((begin, end))
    return left


def first(ranges: Iterable[Range], count: int) -> list[Range]:
    """The first `count` positions, in the order of `ranges`, or all if there are fewer."""
    taken: list[Range] = []
    for begin, end in ranges:
        if count <= 0:
            break
        taken.append((begin, min(end, begin + count)))
        count -= end - begin
    return taken


def size(ranges: Iterable[Range]) -> int:
    """The number of positions. REQUIRES: no overlaps."""
    return sum(end - begin for begin, end in ranges)

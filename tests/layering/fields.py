# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Fields() of a struct or class of the cores names all of its data members.

Equality, the search for new states and the fingerprints of the explorer rest on Fields(). A member
that it lacks makes two different states look the same, and no other test notices.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sources import blank_comments_and_literals, files, read_text

FOLDERS = (
    "aggregator/core",
    "aggregator/leadership/core",
    "client/core",
    "accelerator/node/core",
    "protocol",
)

# Members that Fields() may lack, and why.
LEFT_OUT = {
    "aggregator/core/contribution.h: arrived_": "for observers",
    "aggregator/core/contribution.h: first_arrived_": "for observers",
    "aggregator/core/coordinator.h: config_": "constant",
    "aggregator/core/coordinator.h: shortest_wait_": "constant",
    "aggregator/core/coordinator.h: deadlines_": "how early jobs are looked at changes nothing",
    "aggregator/core/deadlines.h: by_time_": "derived",
    "aggregator/core/delivery.h: frame_chunks_": "constant",
    "aggregator/core/delivery.h: max_streams_": "constant",
    "aggregator/core/delivery.h: rules_": "constant",
    "aggregator/core/delivery.h: resent_": "counts, for observers",
    "aggregator/core/lane.h: layout_bytes": "derived from the tensors",
    "aggregator/core/lanes.h: by_name_": "derived from the lanes",
    "client/core/lanes.h: by_name_": "derived from the lanes",
    "protocol/layout.h: sizes_": "derived from the tensors",
    "protocol/layout.h: bases_": "derived from the tensors",
    "protocol/layout.h: by_name_": "derived from the tensors",
    "protocol/layout.h: chunks_": "derived from the tensors",
    "protocol/layout.h: bytes_": "derived from the tensors",
    "aggregator/core/workers.h: still_counting_": "derived from the workers",
    "aggregator/core/workers.h: taken_": "for observers",
    "aggregator/core/roster.h: index_": "derived from the members",
    "aggregator/core/roster.h: tally_": "derived from the members",
    "aggregator/core/job.h: goodput": "for observers",
    "aggregator/core/job.h: rounds": "for observers",
    "aggregator/core/lane.h: past": "for observers",
    "aggregator/core/flow_control.h: stalls_": "for observers",
    "aggregator/core/round.h: opened": "for observers",
    "aggregator/core/round.h: last_owes": "for observers",
    "aggregator/core/round.h: straggler": "for observers",
    "aggregator/core/round_member.h: carried": "for observers",
    "aggregator/core/workers.h: by_id_": "derived from the workers",
    "aggregator/core/workers.h: counts_": "derived from the workers",
    "client/core/client_state.h: config": "constant",
    "accelerator/node/core/local_group.h: config_": "constant",
    "accelerator/node/core/local_group.h: now_": "an argument of the Step that runs",
    "accelerator/node/core/local_group.h: actions_": "an argument of the Step that runs",
    "protocol/intervals.h: count_": "derived from the runs",
    "protocol/bitmap.h: count_": "derived from the bits",
    "protocol/member_list.h: list_": "ids() and ranks() give what it points to",
    "protocol/shared_list.h: items_": "items() gives what it points to",
    "protocol/transitions.h: taken_": "for observers",
}

_HEAD = re.compile(r"\b(?:class|struct)\s+(\w+)(?:\s+final)?\s*(?::[^{;]*)?\{")
_FIELDS = re.compile(r"\bauto\s+Fields\(\)\s*const\s*\{\s*return\s+std::tie\(([^;]*)\);\s*\}")
_FUNCTION_BODY = re.compile(r"(\)(?:\s*(?:const|noexcept|override|final))*(?:\s*->[^;{]*)?)\s*\{\}")
_NOT_DATA = re.compile(
    r"^\s*(?:static|using|friend|enum|typedef|template|explicit|virtual|class|struct|union)\b"
)


@dataclass(frozen=True)
class Record:
    """One struct or class that has Fields()."""

    name: str
    line: int
    members: tuple[str, ...]
    listed: tuple[str, ...]


def _end(code: str, begin: int) -> int:
    """The position after the brace that closes the one before `begin`."""
    depth = 1
    at = begin
    while depth > 0:
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        at += 1
    return at


def _outermost(body: str, at: int) -> bool:
    return body.count("{", 0, at) == body.count("}", 0, at)


def _flat(body: str) -> str:
    """The body without what is in braces, so that nested types and functions are one word each."""
    flat = []
    depth = 0
    for letter in body:
        if letter == "{":
            depth += 1
        if depth == 0:
            flat.append(letter)
        if letter == "}":
            depth -= 1
            if depth == 0:
                flat.append("{}")
    return "".join(flat)


def _without_templates(text: str) -> str:
    while True:
        shorter = re.sub(r"<[^<>]*>", "", text)
        if shorter == text:
            return text
        text = shorter


def _members(body: str) -> Iterator[str]:
    flat = re.sub(r"\b(?:public|protected|private):", "", _flat(body))
    # A function's body ends its declaration as a semicolon does.
    flat = re.sub(
        r"(\)(?:\s*(?:const|noexcept|override|final))*(?:\s*->[^;{]*)?)\s*\{\}", r"\1;", flat
    )
    for statement in flat.split(";"):
        text = _without_templates(statement).strip()
        if not text or _NOT_DATA.match(text):
            continue
        declared = re.sub(r"(?:=.*|\{\})$", "", text, flags=re.DOTALL).strip()
        if "(" in declared or ")" in declared:
            continue
        if name := re.search(r"[\w>&*\]]\s+[&*]?(\w+)$", declared):
            yield name.group(1)


def records(text: str) -> Iterator[Record]:
    """The records of a header that have Fields() of their own."""
    code = blank_comments_and_literals(text)
    for head in _HEAD.finditer(code):
        body = code[head.end() : _end(code, head.end()) - 1]
        own = next((f for f in _FIELDS.finditer(body) if _outermost(body, f.start())), None)
        if own is None:
            continue
        # In begin_.spec, the member is begin_.
        listed = tuple(re.findall(r"(?:^|,)\s*(\w+)", own.group(1)))
        line = code.count("\n", 0, head.start()) + 1
        yield Record(head.group(1), line, tuple(_members(body)), listed)


def violations(root: Path, left_out: Mapping[str, str] = LEFT_OUT) -> Iterator[str]:
    """One sentence for each member that is neither in Fields() nor left out for a reason."""
    lacking = set()
    for path in files(root, FOLDERS):
        if not path.endswith(".h"):
            continue
        for record in records(read_text(root / path) or ""):
            for member in record.members:
                if member in record.listed:
                    continue
                lacking.add(f"{path}: {member}")
                if f"{path}: {member}" not in left_out:
                    yield f"{path}:{record.line}: Fields() of {record.name} lacks {member}"
    for name in sorted(set(left_out) - lacking):
        yield f"{name} need not be left out any more; see LEFT_OUT in fields.py"

# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Style rules that a program can check, one row each."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from layers import PRODUCT_FOLDERS, within
from sources import CPP_SUFFIXES, blank_comments_and_literals, files, read_text

LICENSE_LINE = "Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0"
_LICENSED = {".h", ".cc", ".cu", ".cuh", ".proto", ".py", ".sh", ".cmake"}
_COLUMNS = 100
_WIDE_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".proto", ".py", ".sh", ".cmake"}


@dataclass(frozen=True)
class Ban:
    """A pattern that no line may match.

    folders: where it holds; suffixes: in which files, all when empty
    code:    matches C++ with comments and literals blanked
    except_in: folders or files without the rule, with the reason beside the row
    """

    pattern: str
    reason: str
    folders: tuple[str, ...] = (".",)
    suffixes: tuple[str, ...] = ()
    code: bool = False
    except_in: tuple[str, ...] = ()


_CPP = tuple(sorted(CPP_SUFFIXES))
# This folder names the banned patterns.
_SELF = "tests/layering"

BANS = (
    Ban(r"\b(TODO|FIXME|XXX|HACK)\b", "open ends belong in the issue tracker", except_in=(_SELF,)),
    Ban(r"[ \t]+$", "trailing blanks"),
    Ban(r"\r", "carriage return"),
    Ban(
        r"(?<![\w.])/(home|Users|root|work)/\w",
        "absolute path of one machine",
        except_in=(_SELF,),
    ),
    Ban(r"\t", "tab", suffixes=(*_CPP, ".proto", ".py", ".cmake")),
    Ban(r"#\s*pragma\s+once", "use an include guard", suffixes=_CPP),
    Ban(r"\busing\s+namespace\b", "no using-directives", suffixes=_CPP, code=True),
    Ban(
        r"\bstd::(cout|cerr|clog)\b|(?<!\w)(printf|puts|fprintf|putchar)\s*\(",
        "libraries do not print",
        folders=PRODUCT_FOLDERS,
        suffixes=_CPP,
        code=True,
        # Programs, and the default log of a trainer.
        except_in=("aggregator/main.cc", "client/c/stderr_log.cc"),
    ),
    Ban(
        r"\b(throw|catch)\b\s*[\w(]|\btry\s*\{",
        "errors are absl::Status, not exceptions",
        folders=PRODUCT_FOLDERS,
        suffixes=_CPP,
        code=True,
    ),
    Ban(
        r"\b(GetInstance|Instance|Singleton|GetSingleton)\s*\(",
        "no singletons: pass it to the constructor",
        suffixes=_CPP,
        code=True,
    ),
    Ban(
        r"^\s*(?:static|thread_local|inline static|static inline)\s+"
        r"(?!const\b|constexpr\b|inline\b|_)[\w:<>,&*\s]+?[\s&*]\w+\s*(?:=[^=]|\{|;)",
        "no mutable static state",
        folders=PRODUCT_FOLDERS,
        suffixes=_CPP,
        code=True,
        # nvcc's code registers kernels before main, and has no place for an object of ours. A
        # handler of fork() gets no argument.
        except_in=("kernels/cuda/loaded_runtime.cc", "client/transport/grpc/held_sockets.cc"),
    ),
    Ban(
        r"\b(std::this_thread::sleep_\w+|absl::SleepFor|usleep|nanosleep)\b|(?<![\w.])sleep\s*\(",
        "wait for an event, not for time",
        folders=(*PRODUCT_FOLDERS, "tests"),
        suffixes=_CPP,
        code=True,
        # Shows something at an interval; gRPC has no event for its end.
        except_in=("aggregator/ctl/watch.cc", "runtime/grpc/ending.cc"),
    ),
    Ban(
        r"\btime\.sleep\s*\(",
        "wait for an event, not for time",
        suffixes=(".py",),
        except_in=(_SELF,),
    ),
    Ban(r"\bDISABLED_\w+", "a disabled test is a hidden skip; use GTEST_SKIP", suffixes=_CPP),
    Ban(
        r"EXPECT_TRUE\(true\)|ASSERT_TRUE\(true\)|SUCCEED\(\)",
        "asserts nothing",
        suffixes=_CPP,
        code=True,
    ),
    Ban(
        r"NOLINT(?!(NEXTLINE|BEGIN|END)?\([\w,.* -]+\))",
        "name the check that NOLINT is for",
        suffixes=_CPP,
    ),
)


def _wide(path: str) -> bool:
    return Path(path).suffix in _WIDE_SUFFIXES or Path(path).name == "CMakeLists.txt"


def _licensed(path: str) -> bool:
    return Path(path).suffix in _LICENSED or Path(path).name == "CMakeLists.txt"


def _guard(path: str) -> str:
    # The guard of an installed header has the name that users include, which begins with basin/.
    _, public, name = path.rpartition("/include/")
    return re.sub(r"[^A-Z0-9]", "_", (f"{name}_" if public else f"BASIN_{path}_").upper())


def _file_violations(path: str, text: str) -> Iterator[str]:
    lines = text.removesuffix("\n").split("\n")
    if text and not text.endswith("\n"):
        yield f"{path}:{len(lines)}: no newline at the end"
    if text.endswith("\n\n"):
        yield f"{path}:{len(lines)}: blank lines at the end"
    if _licensed(path) and not any(LICENSE_LINE in line for line in lines[:3]):
        yield f"{path}:1: the first line is: {LICENSE_LINE}"
    # Highway includes its -inl.h files once per target, with a guard that it toggles.
    per_target = path.endswith("-inl.h") and "HWY_TARGET_TOGGLE" in text
    guard = f"#ifndef {_guard(path)}\n#define {_guard(path)}\n"
    if path.endswith(".h") and not per_target and guard not in text:
        yield f"{path}:1: the include guard is {_guard(path)}"
    if _wide(path):
        for number, line in enumerate(lines, 1):
            if len(line) > _COLUMNS:
                yield f"{path}:{number}: {len(line)} columns, more than {_COLUMNS}"
    for part in Path(path).with_suffix("").parts:
        if re.fullmatch(r"utils?|common|misc|helpers?", part):
            yield f"{path}:1: a name says what is inside, {part} does not"


def _applies(ban: Ban, path: str) -> bool:
    return (
        (not ban.suffixes or Path(path).suffix in ban.suffixes)
        and any(folder == "." or within(path, folder) for folder in ban.folders)
        and not any(within(path, folder) for folder in ban.except_in)
    )


def _committed_data(path: str) -> bool:
    """Inputs of tests are data, not prose or code."""
    return re.search(r"(^|/)(corpus|golden|testdata)/", path) is not None


def violations(root: Path) -> Iterator[str]:
    """Yields "path:line: what is wrong" for every violation below `root`."""
    for path in files(root):
        if _committed_data(path) and not path.endswith((*_CPP, ".py", "CMakeLists.txt")):
            continue
        text = read_text(root / path)
        if text is None:
            continue
        yield from _file_violations(path, text)
        lines = text.split("\n")
        code = blank_comments_and_literals(text).split("\n") if path.endswith(_CPP) else lines
        for ban in BANS:
            if not _applies(ban, path):
                continue
            for number, line in enumerate(code if ban.code else lines, 1):
                if re.search(ban.pattern, line):
                    yield f"{path}:{number}: {ban.reason}: {line.strip()[:60]}"

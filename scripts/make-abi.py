#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Writes client/python/basin/_abi.py, the declarations of basin/basin.h for ctypes.

It understands only what the header uses, and fails at anything else.
"""

import keyword
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "client/c/include/basin/basin.h"
MODULE = ROOT / "client/python/basin/_abi.py"

HEAD = '''\
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
# ruff: noqa
# fmt: off
"""The C interface, declared for ctypes. scripts/make-abi.py writes it from basin/basin.h, where
everything is described; a test compares them. A name that Python reserves ends with an underscore.
"""

'''

SCALARS = {
    "double": "c_double",
    "int": "c_int",
    "int32_t": "c_int32",
    "int64_t": "c_int64",
    "size_t": "c_size_t",
    "uint32_t": "c_uint32",
    "uint64_t": "c_uint64",
}
# The directives of the header; none of them changes what follows on this system.
DIRECTIVES = re.compile(
    r"^#(define .*|include <\w+\.h>|ifndef BASIN_BASIN_H_|if defined\(__GNUC__\)|else|endif) *$",
    re.M,
)
# Macros that mean nothing in Python: attributes, functions and initialisers.
OTHER_MACROS = re.compile(r"BASIN_(BASIN_H_|API|SECONDS\(.*|\w+_INIT)")


class NotUnderstood(Exception):
    """This part of the header."""


def number(text: str) -> int:
    if text == "INT32_MIN":
        return -(2**31)
    match = re.fullmatch(r"(\d+|0x[\da-f]+)|\(\(int64_t\)(-\d+)\)", text)
    if match is None:
        raise NotUnderstood(text)
    return int(match[1] or match[2], 0)


def wrapped(line: str) -> str:
    """It may be broken at spaces, but not at "\\0", which becomes one."""
    return textwrap.fill(line, 100, subsequent_indent=" " * 8).replace("\0", " ") + "\n"


def class_name(name: str) -> str:
    return name.removeprefix("basin_").title().replace("_", "")


def statements(code: str) -> Iterator[str]:
    """What ends with a semicolon outside of braces, each on one line."""
    begin = depth = 0
    for at, character in enumerate(code):
        depth += (character == "{") - (character == "}")
        if character == ";" and depth == 0:
            yield " ".join(code[begin:at].split())
            begin = at + 1
    if code[begin:].strip():
        raise NotUnderstood(code[begin:].strip())


class Interface:
    """What the header declares."""

    def __init__(self, header: str) -> None:
        self._constants: list[str] = []
        self._classes: list[str] = []
        self._functions: list[str] = []
        # The types of ctypes for a type of the header, and for a pointer to one.
        self._values = dict(SCALARS)
        self._pointers = {name: f"POINTER({kind})" for name, kind in SCALARS.items()}
        self._pointers |= {"char": "c_char_p", "void": "c_void_p"}
        text = re.sub(r"/\*.*?\*/", " ", header, flags=re.S).replace("\\\n", " ")
        text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif", "", text, flags=re.M | re.S)
        for macro in re.findall(r"^#define (.*)$", text, re.M):
            name, _, value = macro.partition(" ")
            if not OTHER_MACROS.fullmatch(name):
                self._constant(name, value.strip())
        for statement in statements(DIRECTIVES.sub("", text)):
            self._declare(statement)

    def module(self) -> str:
        functions = "".join(wrapped(f"    {function},") for function in self._functions)
        body = (
            f"{''.join(self._constants)}\n\n"
            + "\n\n".join(self._classes)
            + "\n\n# Name without basin_, result, arguments.\n"
            + f"FUNCTIONS: tuple[tuple[str, Any, list[Any]], ...] = (\n{functions})\n"
        )
        used = set(re.findall(r"\b(?:c_\w+|POINTER|CFUNCTYPE|Structure)\b", body))
        imports = wrapped(f"from ctypes import ({', '.join(sorted(used))})")
        return f"{HEAD}{imports}from typing import Any\n\n{body}"

    def _declare(self, statement: str) -> None:
        if match := re.fullmatch(r"typedef struct (\w+) \1", statement):
            self._pointers[match[1]] = "c_void_p"
        elif match := re.fullmatch(r"typedef struct (\w+) \{ (.*); \} \1", statement):
            self._structure(match[1], match[2])
        elif match := re.fullmatch(r"typedef enum (\w+) \{ (.*) \} \1", statement):
            self._values[match[1]] = "c_int"
            self._pointers[match[1]] = "POINTER(c_int)"
            self._enumerators(match[2])
        elif match := re.fullmatch(r"enum \{ (.*) \}", statement):
            self._enumerators(match[1])
        elif match := re.fullmatch(r"typedef (.*?)\(\*(\w+)\)\((.*)\)", statement):
            name = self._values[match[2]] = class_name(match[2])
            types = f"{self._result(match[1])}, {self._parameters(match[3])}"
            self._classes.append(wrapped(f"{name} = CFUNCTYPE({types})"))
        elif match := re.fullmatch(r"BASIN_API (.*?)basin_(\w+)\((.*)\)", statement):
            result = self._result(match[1])
            self._functions.append(f'("{match[2]}", {result}, [{self._parameters(match[3])}])')
        else:
            raise NotUnderstood(statement)

    def _constant(self, name: str, value: str) -> None:
        self._constants.append(f"{name.removeprefix('BASIN_')} = {number(value)}\n")

    def _enumerators(self, text: str) -> None:
        for enumerator in text.split(", "):
            name, _, value = enumerator.partition(" = ")
            if not name.endswith("_INT"):  # The largest int, so that every int is valid.
                self._constant(name, value)

    def _structure(self, name: str, text: str) -> None:
        fields = []
        for declaration in text.split("; "):
            first, *others = declaration.split(", ")
            kind, field = self._named(first)
            fields += [f'("{each}",\0{kind})' for each in (field, *others)]
        self._pointers[name] = f"POINTER({class_name(name)})"
        self._classes.append(
            f"class {class_name(name)}(Structure):\n"
            + wrapped(f"    _fields_ = [{', '.join(fields)}]")
        )

    def _result(self, text: str) -> str:
        return "None" if text == "void " else self._type(text)

    def _parameters(self, text: str) -> str:
        return ", ".join(self._named(each)[0] for each in text.split(", ") if text != "void")

    def _named(self, declaration: str) -> tuple[str, str]:
        """The type and the name of a field or a parameter."""
        match = re.fullmatch(r"(.*?)(\w+)", declaration)
        if match is None:
            raise NotUnderstood(declaration)
        return self._type(match[1]), match[2] + "_" * keyword.iskeyword(match[2])

    def _type(self, text: str) -> str:
        name, *stars = text.replace("const", " ").replace("*", " * ").split()
        kinds = self._pointers if stars else self._values
        if name not in kinds or set(stars) - {"*"}:
            raise NotUnderstood(text)
        more = len(stars) - 1
        return "POINTER(" * more + kinds[name] + ")" * more


if __name__ == "__main__":
    MODULE.write_text(Interface(HEADER.read_text(encoding="utf-8")).module(), encoding="utf-8")

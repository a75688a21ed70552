# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The package's declarations are those of basin.h, and nothing of a header is passed over."""

import textwrap
import unittest
from types import SimpleNamespace

from loading import load

make_abi = load("make-abi.py")


def declared(header: str) -> SimpleNamespace:
    """What the module of a header has."""
    names: dict[str, object] = {}
    exec(make_abi.Interface(header).module(), names)
    return SimpleNamespace(**names)


class TheTree(unittest.TestCase):
    def test_the_package_has_what_the_header_declares(self) -> None:
        text = make_abi.Interface(make_abi.HEADER.read_text()).module()
        self.assertTrue(text == make_abi.MODULE.read_text(), "Run scripts/make-abi.py.")


class Headers(unittest.TestCase):
    def test_each_kind_of_declaration(self) -> None:
        made = declared(
            textwrap.dedent("""
            #define BASIN_MOST 0x10 /* No more. */
            typedef enum basin_code { BASIN_OK = 0, BASIN_CODE_INT = 0x7fffffff } basin_code;
            enum { BASIN_FLAG = 4 };
            typedef struct basin_error basin_error;
            typedef struct basin_some_data {
              basin_code as;
              double x, y;
              const char* const* names;
            } basin_some_data;
            typedef void (*basin_done)(void* user, const basin_error* error);
            BASIN_API basin_code basin_do(const basin_some_data* data, size_t* bytes,
                                          basin_done done, basin_error** error);
            BASIN_API void basin_end(void);
        """)
        )
        self.assertEqual((0x10, 0, 4), (made.MOST, made.OK, made.FLAG))
        self.assertFalse(hasattr(made, "CODE_INT"))
        self.assertEqual(
            [
                ("as_", made.c_int),
                ("x", made.c_double),
                ("y", made.c_double),
                ("names", made.POINTER(made.c_char_p)),
            ],
            made.SomeData._fields_,
        )
        pointers = [made.POINTER(each) for each in (made.SomeData, made.c_size_t, made.c_void_p)]
        self.assertEqual(
            (
                ("do", made.c_int, [*pointers[:2], made.Done, pointers[2]]),
                ("end", None, []),
            ),
            made.FUNCTIONS,
        )

    def test_anything_else_is_refused(self) -> None:
        for header in (
            "#define BASIN_MOST (1 << 4)",
            "#pragma pack(1)",
            "#if 0\nenum { BASIN_A = 1 };\n#endif",
            "enum { BASIN_A };",
            "typedef union basin_u { int a; } basin_u;",
            "typedef struct basin_s { int a[3]; } basin_s;",
            "typedef struct basin_s { int a : 3; } basin_s;",
            "typedef struct basin_s { unsigned int a; } basin_s;",
            "BASIN_API float basin_f(void);",
            "BASIN_API int basin_f(basin_unknown* a);",
            "int basin_f(void);",
            "BASIN_API int basin_f(int a)",
        ):
            with self.subTest(header), self.assertRaises(make_abi.NotUnderstood):
                make_abi.Interface(header)


if __name__ == "__main__":
    unittest.main()

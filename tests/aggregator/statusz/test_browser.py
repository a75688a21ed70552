# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The status page as a real browser shows it.

Usage: test_browser.py BASIND TRAINER [SCREENSHOTS]

With a folder for SCREENSHOTS, it also writes what the page looks like.
"""

import sys
import unittest
from pathlib import Path

from browser import Browser, find
from trained import HOSTILE, Trained

SKIPPED = 77
PROGRAM = ""
SCREENSHOTS: Path | None = None


class InABrowser(Trained):
    def setUp(self) -> None:
        super().setUp()
        self.browser = Browser(PROGRAM)
        self.addCleanup(self.browser.end)
        self.url = f"http://{self.basind.http}/statusz"

    def shoot(self, name: str) -> None:
        if SCREENSHOTS is not None:
            self.browser.screenshot(SCREENSHOTS / f"{name}.png")

    def test_refreshes_itself_and_loads_nothing_else(self) -> None:
        a, b = self.join("vision")
        self.browser.open(self.url)
        self.assertIn("No round is open", self.browser.text())
        self.browser.evaluate("window.old = true")
        self.rounds(a, b, 2)
        self.hang_in_a_round(a)
        asked = {
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event.get("method") == "Network.requestWillBeSent"
        }
        self.browser.await_event("Page.loadEventFired")
        self.assertIsNone(self.browser.evaluate("window.old"), "it is a new page")
        text = self.browser.text()
        self.assertIn("Round 3 is open since", text)
        self.assertIn("begin", text)
        loaded = self.browser.evaluate(
            "performance.getEntriesByType('resource').map(entry => entry.name).join()"
        )
        self.assertEqual("", loaded)
        self.assertLessEqual(asked, {self.url, "data:,"})

    def test_fault_s7_hostile_names_are_only_text(self) -> None:
        a, b = self.join("vision", TRAINER_LANE=HOSTILE, TRAINER_TENSOR=HOSTILE)
        self.rounds(a, b, 1)
        self.browser.open(self.url)
        self.assertIn(HOSTILE, self.browser.text())
        self.assertEqual("Basin: 1 job", self.browser.evaluate("document.title"))
        self.assertEqual(
            0, self.browser.evaluate("document.querySelectorAll('script, img').length")
        )

    def test_scripts_would_not_run(self) -> None:
        """The policy of the page forbids them, should a name ever become markup."""
        script = (
            "{ const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
            "document.body.append(s) } window.ran"
        )
        self.browser.open("data:text/html,<body>")
        self.assertEqual(1, self.browser.evaluate(script), "it runs where nothing forbids it")
        self.browser.open(self.url)
        self.assertIsNone(self.browser.evaluate(script))

    def test_fits_a_phone_and_the_dark(self) -> None:
        a, b = self.join("team/vision-transformer-large")
        self.rounds(a, b, 60)
        self.hang_in_a_round(a)
        colours = {}
        for name, width, dark in (
            ("desktop", 1280, False),
            ("phone", 390, False),
            ("dark", 1280, True),
        ):
            self.browser.resize(width, 800, dark)
            self.browser.open(self.url)
            self.shoot(name)
            with self.subTest(name):
                # Tables may be scrolled within their box, but the page itself is not wider.
                self.assertLessEqual(
                    self.browser.evaluate("document.documentElement.scrollWidth"), width
                )
                self.assertGreater(
                    self.browser.evaluate("document.querySelectorAll('rect').length"), 10
                )
                self.assertEqual(
                    2, self.browser.evaluate("document.querySelectorAll('polyline').length")
                )
            colours[name] = self.browser.evaluate("getComputedStyle(document.body).backgroundColor")
        self.assertEqual(colours["desktop"], colours["phone"])
        self.assertNotEqual(colours["desktop"], colours["dark"])


if __name__ == "__main__":
    Trained.basind_program, Trained.trainer_program = Path(sys.argv[1]), Path(sys.argv[2])
    SCREENSHOTS = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    PROGRAM = find() or ""
    if not PROGRAM:
        print("skipped: there is no Chromium (scripts/setup.sh installs one)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)

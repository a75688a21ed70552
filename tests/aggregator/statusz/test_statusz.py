# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The status page of a running basind, read by a parser.

Usage: test_statusz.py BASIND TRAINER
"""

import http.client
import sys
import unittest
from html.parser import HTMLParser
from pathlib import Path

from trained import HOSTILE, Trained, Trainer

# Elements without an end.
VOID = {"meta", "link"}
ALLOWED = VOID | set(
    "html head title style body header section div h1 h2 h3 h4 p a span i table thead tbody tr th "
    "td svg polyline rect circle".split()
)


class Page(HTMLParser):
    """Checks the form of the page, and collects its text, links and rows of tables."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.refresh = ""
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.problems: list[str] = []
        self.feed(source)
        self.close()
        if self.open:
            self.problems.append(f"never closed: {self.open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ALLOWED:
            self.problems.append(f"element {tag}")
        values = {name: value or "" for name, value in attrs}
        self.problems += [f"attribute {name}" for name in values if name.startswith("on")]
        self.ids.add(values.get("id", ""))
        if tag == "a":
            self.links.append(values["href"])
        if values.get("http-equiv") == "refresh":
            self.refresh = values["content"]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"end of {tag}")

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.texts.append(data)
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data

    def text(self) -> str:
        return " ".join(self.texts)

    def row(self, first: str, columns: int) -> list[str]:
        """The row with this first cell, in a table of so many columns."""
        found = [row for row in self.rows if row[0] == first and len(row) == columns]
        assert found, (first, self.rows)
        return found[0]


class Statusz(Trained):
    def page(self) -> Page:
        status, source = self.basind.get("/statusz")
        self.assertEqual(200, status)
        page = Page(source)
        self.assertEqual([], page.problems)
        return page

    def test_names_the_members_the_open_round_and_whom_it_waits_for(self) -> None:
        a, b = self.join("team/vision")
        self.rounds(a, b, 3)
        self.hang_in_a_round(a)
        page = self.page()
        self.assertEqual("5", page.refresh)
        self.assertEqual(["team/vision", "running", "2 of 2", "3", ""], page.row("team/vision", 5))
        self.assertIn("Round 4 is open since", page.text())
        waits = page.row("b", 5)
        self.assertEqual("begin", waits[1])
        self.assertRegex(waits[2], r"^\d+(\.\d+)?m?s$")
        self.assertRegex(waits[3], "^4 chunks$")
        for worker in ("a", "b"):
            self.assertEqual("member", page.row(worker, 4)[3])
        for number in ("1", "2", "3"):
            self.assertEqual(["committed", "2 of 2"], page.row(number, 10)[1:3])
        for use in ("waiting", "pending"):  # `a` waits, and `b` may still compute.
            self.assertRegex(page.row(use, 4)[3], r"^\d+(\.\d+)?m?s$")
        for title in ("Gradient norm", "Effective batch, samples", "now 64"):
            self.assertIn(title, page.text())
        self.assertIn("worker_late", [row[1] for row in page.rows if len(row) == 6])
        self.assertNotIn("round_committed", page.text())

    def test_links_lead_to_the_metrics_and_within_the_page(self) -> None:
        self.join("vision")
        page = self.page()
        self.assertEqual({"/metrics", "#job-vision"}, set(page.links))
        self.assertIn("job-vision", page.ids)
        self.assertEqual(200, self.basind.get("/metrics")[0])

    def test_fault_s7_hostile_names_are_only_text(self) -> None:
        names = {"TRAINER_LANE": HOSTILE, "TRAINER_TENSOR": HOSTILE + "t"}
        a, b = self.join("vision", **names)
        self.rounds(a, b, 1)
        self.hang_in_a_round(a)
        self.assertIn(HOSTILE, self.page().text())
        self.end_round(a, b)

    def test_names_of_refused_jobs_are_not_shown(self) -> None:
        self.join("vision")
        refused = Trainer(self.trainer_program, self.basind.grpc, "invented", "w", 2, 1000)
        self.addCleanup(refused.kill)
        self.assertIn("invented", self.basind.await_event("job_refused")["reason"])
        page = self.page()
        self.assertIn("vision", page.text())
        self.assertNotIn("invented", page.text())

    def test_can_only_be_read_and_loads_nothing(self) -> None:
        connection = http.client.HTTPConnection(self.basind.http, timeout=60)
        self.addCleanup(connection.close)
        connection.request("HEAD", "/statusz")
        head = connection.getresponse()
        self.assertEqual(200, head.status)
        self.assertEqual("text/html; charset=utf-8", head.headers["Content-Type"])
        policy = head.headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertIn("form-action 'none'", policy)
        self.assertNotIn("script", policy)
        for method in ("POST", "PUT", "DELETE"):
            other = http.client.HTTPConnection(self.basind.http, timeout=60)
            self.addCleanup(other.close)
            other.request(method, "/statusz")
            self.assertEqual(405, other.getresponse().status)


if __name__ == "__main__":
    Trained.basind_program, Trained.trainer_program = Path(sys.argv[1]), Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1], verbosity=2)

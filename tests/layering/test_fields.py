# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Fields() is complete in the tree, and fields.py finds a member that it lacks."""

import unittest

import fields
from planted_tree import ROOT, PlantedTree

# Every kind of declaration that the cores use, and one member that Fields() lacks.
PLANTED = """
class Planted : public Base {
 public:
  explicit Planted(int number) : number_(number) {}
  int number() const { return number_; }
  static constexpr int kMost = 3;
  auto Fields() const { return std::tie(number_, begin_.spec, nested_, names_, due_); }

 private:
  struct Nested {
    int first = 0;
    int second = 0;
    auto Fields() const { return std::tie(first); }
  };
  enum class Kind : int { kOne = 1 };
  void Take(const Nested& nested);

  int number_ = 0;  // A comment; with a semicolon.
  Begin begin_;
  std::map<int, std::pair<int, Nested>> nested_;
  std::vector<std::string> names_{"a", "b"};
  absl::Time due_ = absl::InfiniteFuture();
  std::optional<Kind> forgotten_;
};
"""
PATH = "aggregator/core/planted.h"


class TheTree(unittest.TestCase):
    maxDiff = None

    def test_is_complete(self) -> None:
        self.assertEqual([], list(fields.violations(ROOT)))

    def test_is_looked_at(self) -> None:
        names = {
            record.name
            for path in fields.files(ROOT, fields.FOLDERS)
            if path.endswith(".h")
            for record in fields.records(fields.read_text(ROOT / path) or "")
        }
        self.assertLessEqual({"Job", "Round", "Delivery", "Blobs", "Client", "Lane"}, names)
        self.assertGreater(len(names), 80)


class PlantedGaps(PlantedTree):
    def test_members_that_are_lacking(self) -> None:
        self.plant(PATH, PLANTED)
        found = "\n".join(fields.violations(self.root, {}))
        self.assertIn("Fields() of Planted lacks forgotten_", found)
        self.assertIn("Fields() of Nested lacks second", found)
        self.assertEqual(2, found.count("lacks"), found)

    def test_a_reason_that_is_not_needed(self) -> None:
        self.plant(PATH, PLANTED)
        reasons = {f"{PATH}: {name}": "" for name in ("forgotten_", "second", "number_")}
        self.assertEqual(
            [f"{PATH}: number_ need not be left out any more; see LEFT_OUT in fields.py"],
            list(fields.violations(self.root, reasons)),
        )


if __name__ == "__main__":
    unittest.main()

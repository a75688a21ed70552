# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.transformers: two workers train what one process trains with their batch, also if they have
different numbers of tokens.

Usage: test_transformers.py BASIND LIBBASIN
"""

from framework_jobs import FrameworkTest, main, require_frameworks

require_frameworks("accelerate", "transformers")


class Transformers(FrameworkTest):
    script = "train_transformers.py"

    def test_a_training_is_that_of_one_process(self) -> None:
        self.assert_equal_to_one_process("plain", 1e-10)
        self.assert_trained("plain")

    def test_micro_batches_also_in_a_short_window(self) -> None:
        self.assert_equal_to_one_process("accumulation", 1e-10)
        self.assert_trained("accumulation")

    def test_clipping_also_in_a_short_window(self) -> None:
        self.assert_equal_to_one_process("clipping", 1e-10)
        self.assert_trained("clipping")

    def test_a_checkpoint_continues_the_training(self) -> None:
        self.assert_equal_to_one_process("resumed", 1e-10)
        for name, value in self.alone["plain"].items():
            self.assertLess(float((value - self.alone["resumed"][name]).abs().max()), 1e-10)

    def test_a_trainer_trains_again(self) -> None:
        self.assert_equal_to_one_process("again", 1e-10)
        for name, value in self.alone["plain"].items():
            self.assertFalse(value.equal(self.alone["again"][name]), name)

    def test_losses_are_those_of_all_workers(self) -> None:
        for rank in self.together:
            self.assertEqual(2, len(rank["logged"]["losses"]))
            for name, value in rank["logged"].items():
                self.assertTrue(value.equal(self.together[0]["logged"][name]), name)

    def test_bf16(self) -> None:
        self.assert_equal_to_one_process("bf16", 5e-2)


if __name__ == "__main__":
    main()

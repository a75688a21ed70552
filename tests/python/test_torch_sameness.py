# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Optimizers and parameters that differ among the workers of a job are refused, and equal ones
never are.

Usage: test_torch_sameness.py BASIND LIBBASIN
"""

from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    expect,
    loss_of,
    main,
    model,
    session,
    take_step,
)

# ---- workers


def parameters(net: nn.Module) -> list[torch.Tensor]:
    return [each.detach().clone() for each in net.parameters()]


def other_numbers(rank: int, kind: str, mine: dict[str, Any], usual: dict[str, Any]) -> Any:
    """Worker 1 has other options than the others. Its error, who was counted, and the rank."""
    with session() as bt:
        net = model()
        options = mine if bt.rank() == 1 else usual
        optimizer = bt.DistributedOptimizer(
            getattr(torch.optim, kind)(net.parameters(), **options),
            net.named_parameters(),
            check_optimizer=True,
        )
        text = ""
        if bt.rank() == 1:
            text = expect("Mismatch", loss_of(net, rank).backward)
        else:
            loss_of(net, rank).backward()
        return bt.rank(), text, len(optimizer.last_round().contributors)


def forgets_a_schedule(rank: int) -> Any:
    """Only worker 1 steps its scheduler in the third step. Then it does as the others again."""
    with session() as bt:
        net = model()
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
            net.named_parameters(),
            check_optimizer=True,
        )
        texts = []
        for step in range(6):
            optimizer.zero_grad()
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + (step == 3 and bt.rank() == 1))
            if step == 3 and bt.rank() == 1:
                texts.append(expect("Mismatch", loss_of(net, rank, step).backward))
                optimizer.param_groups[0]["lr"] = 0.1
            else:
                loss_of(net, rank, step).backward()
            optimizer.step()
        return bt.rank(), texts, len(optimizer.last_round().contributors), parameters(net)


def in_two_groups(rank: int, net: Any) -> Any:
    """Equal steps from optimizers that differ in all that makes no difference."""
    layers = [{"params": net[0].parameters(), "lr": 0.01}, {"params": net[2].parameters()}]
    made = torch.optim.AdamW(
        layers[::-1] if rank == 1 else layers,
        lr=0.02,
        weight_decay=0.1,
        foreach=rank == 1,
        betas=(0.9, 0.99),
    )
    for group in made.param_groups:
        group["kept_by_the_script"] = rank
    return made


def equal_steps(rank: int, optimizer_of: Any) -> Any:
    """Ten steps with a schedule whose numbers have other last bits on each worker."""
    with session() as bt:
        net = model()
        made = optimizer_of(bt.rank(), net)
        optimizer = bt.DistributedOptimizer(made, net.named_parameters(), check_optimizer=True)
        for step in range(10):
            take_step(net, optimizer, rank, step)
            for group in made.param_groups:
                group["lr"] = group["lr"] * 0.9
                if isinstance(group["lr"], float):
                    group["lr"] *= 1 + bt.rank() * 2**-52
        return len(optimizer.last_round().contributors)


def tensor_as_rate(rank: int, net: nn.Module) -> Any:
    """The rates are tensors that are never read, so they are not compared."""
    return torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1 + rank), capturable=False)


def unchecked(rank: int) -> Any:
    with session() as bt:
        net = model()
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1 + bt.rank()),
            net.named_parameters(),
        )
        take_step(net, optimizer, rank)
        return len(optimizer.last_round().contributors)


def other_schedule(rank: int) -> Any:
    """All have a new rate in each step, and worker 1 has another one. Its errors, and how many
    lists this worker serves at its end."""
    with session() as bt:
        net = model()
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1),
            net.named_parameters(),
            check_optimizer=True,
        )
        texts = []
        for step in range(20):
            optimizer.param_groups[0]["lr"] = (step + 1) * (0.3 if bt.rank() == 1 else 1.0)
            optimizer.zero_grad()
            if bt.rank() == 1:
                texts.append(expect("Mismatch", loss_of(net, rank, step).backward))
            else:
                loss_of(net, rank, step).backward()
            optimizer.step()
        return texts, len(optimizer.basin_lane.store.layout._served)


def drifts(rank: int, every: int) -> Any:
    """In the fourth step, worker 1 changes a parameter of its own. Its errors by step, and the
    parameters at the end."""
    with session() as bt:
        net = model()
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1),
            net.named_parameters(),
            check_optimizer=True,
            check_parameters=every,
        )
        texts = {}
        for step in range(10):
            optimizer.zero_grad()
            if bt.rank() == 1 and step == 3:
                net[2].bias.data[0] += 2**-20
            if bt.rank() == 1 and step == 5:
                texts[step] = expect("Mismatch", loss_of(net, rank, step).backward)
                net[2].bias.data[0] -= 2**-20
            else:
                loss_of(net, rank, step).backward()
            optimizer.step()
        return bt.rank(), texts, len(optimizer.last_round().contributors)


def checksums(rank: int) -> Any:
    """Those of a tensor of several blocks, with its first rows exchanged, transposed, and with
    another last byte."""
    with session():
        from basin.torch import raw

        tensor = torch.arange(300 * 300, dtype=torch.float64).reshape(300, 300)
        other = tensor.to(torch.uint8)[:, :299].contiguous()
        changed = other.clone()
        changed[-1, -1] += 1
        rows = torch.cat([tensor[1:2], tensor[:1], tensor[2:]])
        return [raw.checksum(each) for each in (tensor, rows, tensor.T, other, changed)]


def wrong_interval(rank: int) -> Any:
    with session() as bt:
        net = model()
        return expect(
            "InvalidArgument",
            lambda: bt.DistributedOptimizer(
                torch.optim.SGD(net.parameters(), lr=0.1),
                net.named_parameters(),
                check_parameters=-1,
            ),
        )


# ---- tests


class Optimizers(TorchTest):
    def assert_named(self, pattern: str, *arguments: Any) -> None:
        for rank, text, contributors in self.run_job(other_numbers, *arguments):
            self.assertEqual(WORKERS - 1, contributors)
            if rank == 1:
                self.assertRegex(text, pattern)

    def test_another_rate_is_refused_with_worker_group_and_both_values(self) -> None:
        self.assert_named(
            r"worker \S+ has lr=0.01 in the group of parameter 0.bias, and \S+ \(as all .*\) "
            r"has lr=0.1 in the group of parameter 0.bias\. .*check_optimizer=True",
            "SGD",
            {"lr": 0.01},
            {"lr": 0.1},
        )

    def test_all_options_that_differ_are_named(self) -> None:
        self.assert_named(
            r"has amsgrad=True in .*, betas=\(0.5, 0.999\) in .*, weight_decay=0.1 in .*, and .*"
            r"has amsgrad=False in .*, betas=\(0.9, 0.999\) in .*, weight_decay=0 in ",
            "Adam",
            {"betas": (0.5, 0.999), "weight_decay": 0.1, "amsgrad": True},
            {},
        )

    def test_who_steps_its_scheduler_alone_is_refused_in_that_round_and_goes_on(self) -> None:
        outcomes = self.run_job(forgets_a_schedule)
        for rank, texts, contributors, _ in outcomes:
            self.assertEqual(WORKERS, contributors)
            self.assertEqual(int(rank == 1), len(texts))
            if rank == 1:
                self.assertRegex(texts[0], "has lr=0.05 in the group .* has lr=0.1 in the group")
        self.assert_same_bits([of_one for *_, of_one in outcomes])

    def test_what_makes_no_difference_is_no_difference(self) -> None:
        for optimizer_of in (in_two_groups, tensor_as_rate):
            with self.subTest(optimizer_of.__name__):
                self.assertEqual([WORKERS] * WORKERS, self.run_job(equal_steps, optimizer_of))

    def test_workers_may_differ_without_the_check(self) -> None:
        self.assertEqual([WORKERS] * WORKERS, self.run_job(unchecked))

    def test_each_round_of_another_schedule_is_explained_and_leaves_no_list_behind(self) -> None:
        outcomes = self.run_job(other_schedule)
        for texts, served in outcomes:
            self.assertEqual(2, served)
            for step, text in enumerate(texts):
                self.assertRegex(text, f"has lr={(step + 1) * 0.3:g} in .* has lr={step + 1} in")
        self.assertEqual(20, sum(len(texts) for texts, _ in outcomes))

    def test_parameters_that_differ_are_named_in_the_next_comparison(self) -> None:
        for rank, texts, contributors in self.run_job(drifts, 5):
            self.assertEqual(WORKERS, contributors)
            if rank != 1:
                continue
            self.assertEqual([5], list(texts))
            self.assertRegex(
                texts[5],
                r"have different parameters in lane gradients: worker \S+ has parameter 2.bias "
                r"with the checksum \w{16}, and \S+ \(as all .*\) has parameter 2.bias with",
            )

    def test_a_checksum_depends_on_the_place_of_each_number(self) -> None:
        for sums in self.run_job(checksums):
            self.assertEqual(5, len(set(sums)), sums)

    def test_an_interval_that_is_none_is_refused(self) -> None:
        for text in self.run_job(wrong_interval):
            self.assertIn("check_parameters cannot be -1", text)


if __name__ == "__main__":
    main()

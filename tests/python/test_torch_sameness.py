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
        optimizer = bt.DistributedOptimizer(made, net.named_parameters())
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


def split_otherwise(rank: int, net: Any) -> Any:
    """The same numbers for all parameters, in one group or in two."""
    layers = [{"params": net[0].parameters()}, {"params": net[2].parameters()}]
    return torch.optim.SGD(net.parameters() if rank == 1 else layers, lr=0.01, momentum=0.9)


def unchecked(rank: int, ranks: tuple[int, ...]) -> Any:
    """The numbers of these ranks are not compared, and no two ranks have the same."""
    with session() as bt:
        net = model()
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1 + bt.rank()),
            net.named_parameters(),
            check_optimizer=bt.rank() not in ranks,
        )
        take_step(net, optimizer, rank)
        return len(optimizer.last_round().contributors)


def other_group(rank: int) -> Any:
    """One group of worker 1 has another rate than that of the others. Its error."""
    with session() as bt:
        net = model()
        groups = [
            {"params": net[0].parameters(), "lr": 0.2},
            {"params": net[2].parameters(), "lr": 0.3 if bt.rank() == 1 else 0.1},
        ]
        bt.DistributedOptimizer(torch.optim.SGD(groups, momentum=0.9), net.named_parameters())
        backward = loss_of(net, rank).backward
        return expect("Mismatch", backward) if bt.rank() == 1 else backward()


def many_groups(rank: int, others: int) -> Any:
    """Each parameter of a deep model is a group, with a rate of its own in each step. In the third
    step one of worker 1 differs, the last of all. The error, and who was counted in each step."""
    with session() as bt:
        net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(others)))
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD([{"params": each} for each in net.parameters()], lr=0.1),
            net.named_parameters(),
        )
        text, counted = "", []
        for step in range(4):
            for number, group in enumerate(optimizer.param_groups):
                group["lr"] = 0.1 / (number + step + 1)
            differs = step == 2 and bt.rank() == 1
            optimizer.param_groups[-1]["lr"] *= 1 + differs
            optimizer.zero_grad()
            backward = net(torch.ones(1, 2)).square().mean().backward
            if differs:
                text = expect("Mismatch", backward)
            else:
                backward()
            counted.append(len(optimizer.last_round().contributors))
            optimizer.step()
        return text, counted


def overflows(rank: int) -> Any:
    """The gradient of worker 1 is infinite in some steps, so that no worker makes them, and no
    scheduler is stepped. Returns who was counted in each step, the steps made, and the rate."""
    with session() as bt:
        net = model().float()
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters()
        )
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        made, counted = 0, []
        for step in range(6):
            optimizer.zero_grad()
            factor = float("inf") if bt.rank() == 1 and step in (1, 2, 4) else 1.0
            scaler.scale(net(torch.ones(1, 5)).square().mean() * factor).backward()
            scale = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            counted.append(len(optimizer.last_round().contributors))
            if scaler.get_scale() >= scale:
                made += 1
                scheduler.step()
        return counted, made, optimizer.param_groups[0]["lr"]


def other_schedule(rank: int) -> Any:
    """All have a new rate in each step, and worker 1 has another one. Its errors."""
    with session() as bt:
        net = model()
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1),
            net.named_parameters(),
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
        return texts


def drifts(rank: int, every: int) -> Any:
    """In the fourth step, worker 1 changes a parameter of its own. Its errors by step, and the
    parameters at the end."""
    with session() as bt:
        net = model()
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1),
            net.named_parameters(),
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
            r"lane gradients, round 1: the optimizers differ: worker w\d has lr=0.01 in all "
            r"groups, and worker w\d has lr=0.1 in all groups\. .*check_optimizer=False",
            "SGD",
            {"lr": 0.01},
            {"lr": 0.1},
        )

    def test_all_options_that_differ_are_named(self) -> None:
        self.assert_named(
            r"has amsgrad=True in .*, betas=\(0.5, 0.999\) in .*, weight_decay=0.1 in .*, and .*"
            r"has betas=\(0.9, 0.999\) in all groups, weight_decay=0 in all groups, no amsgrad\.",
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
                self.assertRegex(texts[0], "has lr=0.05 in all groups, .* has lr=0.1 in all")
        self.assert_same_bits([of_one for *_, of_one in outcomes])

    def test_what_makes_no_difference_is_no_difference(self) -> None:
        for optimizer_of in (in_two_groups, split_otherwise, tensor_as_rate):
            with self.subTest(optimizer_of.__name__):
                self.assertEqual([WORKERS] * WORKERS, self.run_job(equal_steps, optimizer_of))

    def test_workers_may_differ_without_the_check(self) -> None:
        self.assertEqual([WORKERS] * WORKERS, self.run_job(unchecked, tuple(range(WORKERS))))

    def test_the_check_is_each_workers_own(self) -> None:
        """As it has to be: a worker of an older release, or in C++, says no numbers."""
        self.assertEqual([WORKERS] * WORKERS, self.run_job(unchecked, (0, 2)))

    def test_the_group_that_differs_is_named(self) -> None:
        self.assertIn(
            "has lr=0.3 in the group of parameter 2.bias, and worker",
            "".join(text or "" for text in self.run_job(other_group)),
        )

    def test_each_round_of_another_schedule_is_explained(self) -> None:
        outcomes = self.run_job(other_schedule)
        for texts in outcomes:
            for step, text in enumerate(texts):
                self.assertRegex(text, f"has lr={(step + 1) * 0.3:g} in .* has lr={step + 1} in")
        self.assertEqual(20, sum(map(len, outcomes)))

    def test_groups_beyond_what_is_sent_are_compared_without_words(self) -> None:
        for layers, words in (
            (3, "has lr=0.0.* in the group of parameter 2.bias, and"),
            (100, "differ in numbers that the aggregator was not sent"),
        ):
            with self.subTest(layers=layers):
                outcomes = self.run_job(many_groups, layers)
                self.assertRegex("".join(text for text, _ in outcomes), words)
                for _, counted in outcomes:
                    self.assertEqual([WORKERS, WORKERS, WORKERS - 1, WORKERS], counted)

    def test_steps_that_a_scaler_skips_are_no_difference(self) -> None:
        for counted, made, rate in self.run_job(overflows):
            self.assertEqual([WORKERS] * 6, counted)
            self.assertEqual((3, 0.1 / 8), (made, rate))

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

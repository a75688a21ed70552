# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What basin.torch refuses: the error names the parameter and a way out.

Usage: test_torch_refusals.py BASIND LIBBASIN
"""

import os
from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    TorchTest,
    average,
    batch,
    expect,
    gradients,
    loss_of,
    main,
    model,
    session,
    sgd,
)

# ---- what workers do


def step_within_backward(rank: int) -> Any:
    with session() as bt:
        net = model()
        optimizer = sgd(net, bt)
        texts: list[str] = []
        x = batch(rank).requires_grad_()
        x.register_hook(lambda _: texts.append(expect("FailedPrecondition", optimizer.step)))
        net(x).square().mean().backward()
        return texts, gradients(net)


def twice_in_one_backward(rank: int) -> Any:
    from torch.utils.checkpoint import checkpoint

    with session() as bt:
        layer = nn.Linear(3, 3).double()
        sgd(layer, bt)
        x = torch.ones(1, 3, dtype=torch.float64, requires_grad=True)
        hidden: Any = checkpoint(layer, x, use_reentrant=True)
        hidden = checkpoint(layer, hidden, use_reentrant=True)
        return expect("Unsupported", hidden.sum().backward)


def refusals(rank: int) -> Any:
    with session() as bt:
        net = model()
        texts = {"lbfgs": expect("Unsupported", sgd_with, torch.optim.LBFGS, net, bt)}
        optimizer = sgd(net, bt)
        texts["closure"] = expect("Unsupported", optimizer.step, lambda: 0.0)
        handle = net[0].weight.register_post_accumulate_grad_hook(lambda p: None)
        texts["hook"] = expect("Unsupported", loss_of(net, rank).backward)
        handle.remove()
        embedding = nn.Embedding(4, 2, sparse=True)
        sgd(embedding, bt)
        loss = embedding(torch.tensor([1])).sum()
        texts["sparse"] = expect("Unsupported", loss.backward)
        complex_net = nn.Linear(2, 2).to(torch.complex64)
        texts["complex"] = expect("Unsupported", sgd, complex_net, bt)
        texts["names"] = expect(
            "InvalidArgument",
            lambda: bt.DistributedOptimizer(
                torch.optim.SGD(net.parameters(), lr=0.1), list(net.named_parameters())[1:]
            ),
        )
        return texts


def made_before_shutdown(rank: int) -> Any:
    """An optimizer and a model of torch's DistributedDataParallel, used after another init()."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    alone = distributed.HashStore()
    distributed.init_process_group("gloo", store=alone, rank=0, world_size=1)
    net, hooked = model(), DistributedDataParallel(model())
    with session() as bt:
        optimizer = sgd(net, bt)
        hooked.register_comm_hook(bt.DDPState(hooked), bt.ddp_comm_hook)
    texts = []
    # Another job: who is early would be a late joiner of workers that are about to leave.
    with session(job=os.environ["BASIN_JOB"] + "-again") as bt:
        loss_of(net, rank).backward()
        texts.append(expect("FailedPrecondition", optimizer.step))
        texts.append(expect("FailedPrecondition", loss_of(hooked, rank).backward))
        again = sgd(net, bt)
        again.zero_grad()
        loss_of(net, rank).backward()
        again.step()
    distributed.destroy_process_group()
    return texts, gradients(net)


def sgd_with(kind: Any, net: nn.Module, bt: Any) -> Any:
    return bt.DistributedOptimizer(kind(net.parameters()), net.named_parameters())


def shards(rank: int) -> Any:
    from torch import distributed
    from torch.distributed.tensor import distribute_tensor, init_device_mesh

    with session() as bt:
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        try:
            net = model()
            mesh = init_device_mesh("cpu", (1,))
            net[2].weight = nn.Parameter(distribute_tensor(net[2].weight.detach(), mesh))
            return expect("Unsupported", sgd, net, bt)
        finally:
            distributed.destroy_process_group()


def elsewhere(rank: int) -> Any:
    with session() as bt:
        net = model()
        net[2] = nn.Linear(8, 3, device="meta")
        return expect("Unsupported", sgd, net, bt)


def other_op(rank: int) -> Any:
    """Rank 2 sums what the others average."""
    with session() as bt:
        net = model()
        optimizer = sgd(net, bt, op=bt.Sum if bt.rank() == 2 else bt.Average)
        text = ""
        if bt.rank() == 2:
            text = expect("Mismatch", loss_of(net, rank).backward)
        else:
            loss_of(net, rank).backward()
        contributors = optimizer.last_round().contributors
        optimizer.step()
        return bt.rank(), text, len(contributors), [p.detach() for p in net.parameters()]


def other_shape(rank: int) -> Any:
    """Rank 2 has a wider layer than the others, and comes after them."""
    import basin

    with session() as bt:
        odd = bt.rank() == 2
        width = 9 if odd else 8
        net = nn.Sequential(nn.Linear(5, width), nn.Linear(width, 3)).double()
        text = ""
        if odd:
            bt.barrier("made")
        try:
            sgd(net, bt)
            if not odd:
                bt.barrier("made")
            loss_of(net, rank).backward()
        except basin.Mismatch as error:
            text = str(error)
        return odd, text


# ---- what is seen of it


class RefusalsTest(TorchTest):
    def test_a_step_within_the_backward_is_refused(self) -> None:
        for texts, result in self.run_job(step_within_backward):
            self.assertEqual(1, len(texts))
            self.assertIn("backward() has returned", texts[0])
            self.assert_close(average(), result)

    def test_a_hook_that_fires_twice_is_refused_by_name(self) -> None:
        for text in self.run_job(twice_in_one_backward):
            self.assertRegex(text, "parameter (weight|bias).*use_reentrant=False")

    def test_what_was_made_before_shutdown_is_refused(self) -> None:
        for (of_optimizer, of_state), result in self.run_job(made_before_shutdown):
            self.assertIn("given to DistributedOptimizer before shutdown()", of_optimizer)
            self.assertIn("DDPState was made before shutdown()", of_state)
            self.assert_close(average(), result)

    def test_what_cannot_be_reduced_is_refused_by_name(self) -> None:
        for texts in self.run_job(refusals):
            self.assertIn("LBFGS", texts["lbfgs"])
            self.assertIn("closure", texts["closure"])
            self.assertIn("0.weight", texts["hook"])
            self.assertIn("weight.grad is sparse", texts["sparse"])
            self.assertIn("complex64", texts["complex"])
            self.assertIn("group0.0", texts["names"])

    def test_a_shard_is_refused_by_name(self) -> None:
        for text in self.run_job(shards):
            self.assertRegex(text, "2.weight is a DTensor.*without FSDP")

    def test_another_device_is_refused_by_name(self) -> None:
        for text in self.run_job(elsewhere):
            self.assertRegex(text, "2.weight is on meta.*Keep the model on the CPU")

    def test_criterion_1_1_another_op_is_told_and_the_others_go_on(self) -> None:
        outcomes = self.run_job(other_op)
        for rank, text, contributors, _ in outcomes:
            self.assertEqual(2, contributors)
            if rank == 2:
                self.assertRegex(text, "SUM.*AVERAGE|AVERAGE.*SUM")
                self.assertRegex(text, "w[01].*w2|w2.*w[01]")
        self.assert_same_bits([parameters for *_, parameters in outcomes])

    def test_another_shape_is_told_by_name(self) -> None:
        for odd, text in self.run_job(other_shape):
            if odd:
                self.assertRegex(
                    text, r"tensor [01]\.(weight|bias) is f64.* here and f64.*same model"
                )
            else:
                self.assertEqual("", text)


if __name__ == "__main__":
    main()

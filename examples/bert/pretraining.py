# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A pretraining as that of BERT, small: masked words and next sentences, with LayerDrop.

    basin-run -n 2 -- python examples/bert/pretraining.py --drop 0.2 --checkpoint last.basin

A batch consists of PIECES micro-batches, which the workers share: two workers accumulate two each,
and one worker all four. So one process trains the same, whatever is dropped: each micro-batch draws
by itself which layers it skips.

- The words are divided by the masked words of all workers in the step, and the sentences by their
  pairs. Workers have different numbers of masked words, so the totals are exchanged before the
  backward, and gradients are summed.
- A layer that a worker has skipped in all its micro-batches is not sent by it. One that all workers
  have skipped keeps grad None, so that Adam leaves it as it is.
- Each printed step says its effective batch, which the aggregator has counted.
- A checkpoint has the optimizer's moments, not only the parameters: with --until, rank 0 writes it
  at that step, and the next start goes on from there.
"""

import argparse
import hashlib
from pathlib import Path

import basin.torch
import torch
from torch import nn

WORDS, LENGTH, WIDTH, LAYERS = 40, 14, 32, 6
CLASS, MASK = WORDS, WORDS + 1  # Tokens that are no words.
PIECES, PAIRS, STEPS = 4, 16, 60


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS + 2, WIDTH)
        self.places = nn.Embedding(LENGTH + 1, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        )
        self.words = nn.Linear(WIDTH, WORDS)
        self.follows = nn.Linear(WIDTH, 2)

    def forward(
        self, tokens: torch.Tensor, skipped: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The scores of each word, and of whether the second sentence follows the first one."""
        x = self.tokens(tokens) + self.places.weight
        for layer, skips in zip(self.layers, skipped.tolist()):
            if not skips:
                x = layer(x)
        return self.words(x[:, 1:]), self.follows(x[:, 0])


class Piece:
    """A micro-batch: pairs of sentences, some of whose words are masked, and the layers that are
    skipped in it. It is the same on whatever worker."""

    def __init__(self, step: int, number: int, drop: float) -> None:
        random = torch.Generator().manual_seed(PIECES * step + number)
        first = torch.randint(WORDS, (PAIRS, 1), generator=random)
        second = torch.randint(WORDS, (PAIRS, 1), generator=random)
        half = LENGTH // 2
        self.follows = torch.randint(2, (PAIRS,), generator=random)
        words = [first]
        for i in range(1, LENGTH):
            following = (3 * words[-1] + 5) % WORDS
            begins = (i == half) & (self.follows == 0)[:, None]
            words.append(torch.where(begins, second, following))
        self.words = torch.cat(words, 1)
        # Another share of the words in each micro-batch.
        share = 0.1 + 0.2 * torch.rand(1, generator=random)
        self.masked = torch.rand(PAIRS, LENGTH, generator=random) < share
        tokens = self.words.masked_fill(self.masked, MASK)
        self.tokens = torch.cat([torch.full((PAIRS, 1), CLASS), tokens], 1)
        self.skipped = torch.rand(LAYERS, generator=random) < drop

    def loss(self, model: nn.Module, totals: dict[str, int]) -> torch.Tensor:
        """Its part of the loss of the whole batch."""
        words, follows = model(self.tokens, self.skipped)
        of_words = nn.functional.cross_entropy(
            words[self.masked], self.words[self.masked], reduction="sum"
        )
        of_pairs = nn.functional.cross_entropy(follows, self.follows, reduction="sum")
        total: torch.Tensor = of_words / max(1, totals["masked"]) + of_pairs / totals["pairs"]
        return total


def hash_of(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drop", type=float, default=0.2, help="how often a layer is skipped")
    parser.add_argument("--checkpoint", type=Path, help="read at the start, if it is there")
    parser.add_argument("--until", type=int, default=STEPS, help="stop after this step")
    return parser.parse_args()


def main(given: argparse.Namespace, leaving: object) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    basin.torch.init()
    rank, size = basin.torch.rank(), basin.torch.size()
    torch.manual_seed(rank)  # The parameters of rank 0 count.
    model = Bert()
    optimizer = basin.torch.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.003),
        model.named_parameters(),
        op=basin.torch.Sum,
        backward_passes_per_step=len(range(rank, PIECES, size)),
    )
    state = basin.torch.State(model, optimizer, start=False)
    if given.checkpoint and rank == 0 and given.checkpoint.exists():
        state.load_checkpoint(given.checkpoint)
    state.start()
    while state.step < given.until and not leaving:
        mine = [Piece(state.step, number, given.drop) for number in range(rank, PIECES, size)]
        counts = {"masked": sum(int(each.masked.sum()) for each in mine)}
        totals = basin.torch.total_counts({**counts, "pairs": PAIRS * len(mine)})
        optimizer.zero_grad()
        loss = torch.zeros(1)
        for piece in mine:
            optimizer.contribute(samples=PAIRS, tokens=int(piece.masked.sum()))
            part = piece.loss(model, totals)
            part.backward()  # The last one of the window sends.
            loss += part.detach()
        basin.torch.clip_grad_norm_(optimizer, max_norm=1.0)
        optimizer.step()
        if state.step % 5 == 0:
            report(state.step, loss, optimizer)
        state.step += 1
    if given.checkpoint and rank == 0:
        state.save_checkpoint(given.checkpoint)
    sent = optimizer.totals()
    print(f"sent {sent.bytes_pushed / max(1, sent.rounds):.0f} bytes in each step")
    print(f"parameters {hash_of(model)}")
    basin.torch.barrier("end")
    basin.torch.shutdown()


def report(step: int, loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    total = basin.torch.allreduce(loss, "loss", op=basin.torch.Sum)
    done = optimizer.last_round()
    if basin.torch.rank() == 0:
        counts = done.spec.counts
        print(
            f"step {step}: loss {float(total):.12f}; effective batch {counts.samples} pairs with "
            f"{counts.tokens} masked words, in {counts.micro_batches} micro-batches of "
            f"{len(done.contributors)} workers"
        )


if __name__ == "__main__":
    with basin.leave_on_sigterm() as leaving:
        main(options(), leaving)

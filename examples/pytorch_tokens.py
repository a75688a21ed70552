# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Sentences of different lengths: gradients are averaged over tokens, not over workers.

    basin-run -n 2 -- python examples/pytorch_tokens.py

Micro-batches have different numbers of tokens. Each loss is a sum over tokens, contribute()
declares their number, and the round divides by the tokens of all workers. Two workers therefore
train the same as one. Every 20th step prints its loss and counts.
"""

import contextlib
import hashlib

import basin.torch
import torch
from torch import nn

VOCABULARY, SENTENCES, MICRO_BATCHES, STEPS = 24, 32, 2, 101
PADDING = -100  # Ignored by cross_entropy().

Batch = list[torch.Tensor]


def make_sentences(step: int) -> Batch:
    """Sentences of 3 to 20 words, in which most words follow from the one before."""
    generator = torch.Generator().manual_seed(step)
    sentences = []
    for length in torch.randint(3, 21, (SENTENCES,), generator=generator).tolist():
        words = [int(torch.randint(VOCABULARY, (1,), generator=generator))]
        while len(words) < length:
            noise = int(torch.rand(1, generator=generator) < 0.1)
            words.append((7 * words[-1] + 3 + noise) % VOCABULARY)
        sentences.append(torch.tensor(words))
    return sentences


def loss_sum(model: nn.Module, sentences: Batch) -> tuple[torch.Tensor, int]:
    """Returns the loss summed over the predicted words, and their number."""
    padded = nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PADDING)
    scores = model(padded[:, :-1].clamp(min=0))
    words = padded[:, 1:].flatten()
    loss = nn.functional.cross_entropy(
        scores.flatten(0, 1), words, ignore_index=PADDING, reduction="sum"
    )
    return loss, int((words != PADDING).sum())


def hash_of(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def main(leaving: object) -> None:
    torch.set_num_threads(1)
    basin.torch.init()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(VOCABULARY, 16), nn.Linear(16, VOCABULARY))
    basin.torch.broadcast_parameters(model)
    optimizer = basin.torch.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.05),
        model.named_parameters(),
        op=basin.torch.WeightedAverage,
        weight_by="tokens",
        contributes="sum",
    )
    for step in range(STEPS):
        mine = make_sentences(step)[basin.torch.rank() :: basin.torch.size()]
        total = torch.zeros(1)
        optimizer.zero_grad()
        for k in range(MICRO_BATCHES):
            sentences = mine[k::MICRO_BATCHES]
            loss, tokens = loss_sum(model, sentences)
            total += loss.detach()
            optimizer.contribute(samples=len(sentences), tokens=tokens)
            is_last = k + 1 == MICRO_BATCHES
            with contextlib.nullcontext() if is_last else optimizer.no_sync():
                loss.backward()
        # .grad is the mean over the tokens of all workers, and the reply has its norm.
        norm = basin.torch.clip_grad_norm_(optimizer, max_norm=1.0)
        optimizer.step()
        if leaving:
            return  # SIGTERM has come: this worker leaves, and the others continue.
        done = optimizer.last_round()
        if step % 20 > 0:
            continue
        total = basin.torch.allreduce(total, "loss", op=basin.torch.Sum)
        if basin.torch.rank() == 0:
            print(
                f"step {step}: loss {float(total) / done.divisor:.4f} over {done.divisor} tokens "
                f"of {done.spec.counts.samples} sentences, in {done.spec.counts.micro_batches} "
                f"micro-batches of {len(done.contributors)} workers; norm {norm:.4f}"
            )
    print(f"parameters {hash_of(model)}")
    basin.torch.barrier("end")
    basin.torch.shutdown()


if __name__ == "__main__":
    with basin.leave_on_sigterm() as leaving:
        main(leaving)

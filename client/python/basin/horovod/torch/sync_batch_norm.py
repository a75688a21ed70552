# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm: a batch norm over the batches of all workers."""

import torch
from torch.nn.modules.batchnorm import _BatchNorm

import basin.torch


class SyncBatchNorm(_BatchNorm):
    """In training, normalizes with mean and variance over the batches of all workers, which may
    have different sizes; otherwise it is a BatchNorm. Takes the arguments of torch.nn.BatchNorm1d,
    for inputs of shape (batch, channels, ...), in any floating dtype; statistics are float32.

    Each forward of a training is a call of all workers, and so is each backward through it. So all
    workers run the same layers in the same order. Raises ValueError for an input without channels,
    or if all workers together have one number for each channel.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(
                f"SyncBatchNorm was given an input of shape {tuple(input.shape)}. Give it (batch, "
                "channels, ...)."
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not (self.training and basin.torch.is_initialized() and basin.torch.size() > 1):
            return super().forward(input)
        channels = input.shape[1]
        rows = input.transpose(0, 1).reshape(channels, -1).float()
        count = rows.shape[1]
        mean = rows.mean(1) if count > 0 else rows.new_zeros(channels)
        # Squares of distances to the mean of this worker: sums of squares would lose digits.
        squares = (rows - mean[:, None]).square().sum(1)
        mine = torch.cat([mean, squares, rows.new_full((1,), count)])
        total, mean, variance = _over_all(basin.torch.allgather(mine[None]), channels)
        if total <= 1:
            raise ValueError(
                "SyncBatchNorm was given one number for each channel, of all workers together, "
                "which has no variance. Use larger batches."
            )
        self._keep(mean.detach(), variance.detach() * (total / (total - 1)))
        shape = [1, channels] + [1] * (input.dim() - 2)
        scale = torch.rsqrt(variance + self.eps)
        normal = (input.float() - mean.view(shape)) * scale.view(shape)
        if self.affine:
            normal = normal * self.weight.float().view(shape) + self.bias.float().view(shape)
        return normal.to(input.dtype)

    def _keep(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        """Updates the running statistics, the same on all workers."""
        if not self.track_running_stats or self.running_mean is None:
            return
        assert self.running_var is not None and self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:  # The average of all batches.
            momentum = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), momentum)


def _over_all(gathered: torch.Tensor, channels: int) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The number of numbers for each channel, and their mean and variance, from one row of each
    worker."""
    counts = gathered[:, -1:]
    total = float(counts.detach().sum())
    means, squares = gathered[:, :channels], gathered[:, channels : 2 * channels]
    shares = counts.detach() / max(total, 1.0)
    mean = (means * shares).sum(0)
    apart = (means - mean).square() * shares
    return total, mean, squares.sum(0) / max(total, 1.0) + apart.sum(0)

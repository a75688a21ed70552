# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A GradScaler whose workers agree."""

from typing import Any

import torch

from basin.torch.context import current
from basin.torch.lane import parameters_of


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for the CPU; the arguments are its, but the device.

    .grad has the same bits on all workers, so all find the same infinities, skip the same steps and
    change their scale alike: nothing is sent for that. What one worker's contribution overflowed
    with, or the sum, is not finite in the result either. The scale goes with each round and is
    compared: a worker whose scale is another one gets Mismatch, with both values, when its
    backward() returns, instead of being summed in another unit.

    With backward_passes_per_step a short window is reduced by unscale_(), or by step() of this
    scaler, whichever comes first.

    A worker that joins late needs the others' scale: basin.torch.broadcast_state(scaler=scaler).
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(device="cpu", **options)

    def scale(self, outputs: Any) -> Any:
        scaled = super().scale(outputs)
        self._tell_lanes()
        return scaled

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        super().update(new_scale)
        self._tell_lanes()

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        # What is left of a window has to be reduced before anyone looks for infinities in it.
        for lane in current().lanes:
            if lane.reduces_for(optimizer):
                lane.reduce_for(optimizer, "unscale_()")
        known = [
            (lane, parameter)
            for lane in current().lanes
            for parameter in parameters_of(optimizer)
            if lane.delivered.squared_norm(parameter) is not None
        ]
        super().unscale_(optimizer)
        for lane, parameter in known:
            lane.delivered.scale(parameter, 1.0 / self.get_scale())

    def _tell_lanes(self) -> None:
        for lane in current().lanes:
            lane.loss_scale = self.get_scale()

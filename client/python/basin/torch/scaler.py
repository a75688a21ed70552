# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Gradient scalers whose scales are compared among workers."""

import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from basin.errors import InvalidArgument, Unsupported
from basin.torch.lane import GradientLane
from basin.torch.store import parameters_of


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for the CPU, with the same arguments.

    After init(), the following holds for it and for torch's own scaler. .grad has the same bits on
    all workers, so all find the same infinities, skip the same steps and change their scale alike,
    without communication. An overflow in one worker's contribution, or in the sum, makes the result
    infinite or NaN as well. Each round carries the scale, which is compared: a worker with a
    different scale gets Mismatch, with both values, when its backward() returns.

    If there are several scalers, each must scale its loss right before the backward of that loss,
    because a round carries the scale of the last scale(). unscale_() and step() of another scaler
    raise FailedPrecondition.

    With backward_passes_per_step, a short window is reduced by unscale_() or by step() of the
    scaler, whichever comes first.

    A worker that joins late needs the others' scale: basin.torch.broadcast_state(scaler=scaler).
    """

    def __init__(self, device: str | torch.device = "cpu", *arguments: Any, **options: Any) -> None:
        if not isinstance(device, str | torch.device):
            raise InvalidArgument(
                f"device cannot be {device!r}: it comes first, as with torch.amp.GradScaler. Use "
                f"GradScaler(init_scale={device!r}) for a scale."
            )
        kind = torch.device(device).type
        if kind not in ("cpu", "cuda"):
            raise Unsupported(
                f"The device of this gradient scaler is {device}, but Basin reduces only tensors "
                'on the CPU and on CUDA devices. Use GradScaler("cpu") or GradScaler("cuda").'
            )
        super().__init__(kind, *arguments, **options)


class ScalerWatch:
    """Makes every torch.amp.GradScaler report its scale and its factors to these lanes, until
    close()."""

    def __init__(self, lanes: Sequence[GradientLane]) -> None:
        self._lanes = lanes
        # By scaler: the tensor that has its scale, the version of that tensor, and the scale.
        self._known: weakref.WeakKeyDictionary[
            torch.amp.GradScaler, tuple[torch.Tensor, int, float]
        ] = weakref.WeakKeyDictionary()
        self._process = os.getpid()
        scaler = torch.amp.GradScaler
        self._methods: dict[str, Callable[..., Any]] = {
            "scale": scaler.scale,
            "update": scaler.update,
            "unscale_": scaler.unscale_,
            "step": scaler.step,
        }
        watched = (self._watching, self._watching, self._unscaling, self._reducing)
        for (name, method), watch in zip(self._methods.items(), watched):
            setattr(scaler, name, torch.compiler.disable(self._here(method, watch(method))))

    def close(self) -> None:
        for name, method in self._methods.items():
            setattr(torch.amp.GradScaler, name, method)

    def _here(self, method: Callable[..., Any], watched: Callable[..., Any]) -> Callable[..., Any]:
        """`watched` in this process, and the method itself in its children."""

        @functools.wraps(method)
        def called(*arguments: Any, **options: Any) -> Any:
            here = os.getpid() == self._process
            return (watched if here else method)(*arguments, **options)

        return called

    def _watching(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Reports the scale after scale() and update()."""

        def telling(scaler: torch.amp.GradScaler, *arguments: Any, **options: Any) -> Any:
            is_new = scaler.is_enabled() and scaler._scale is None
            returned = method(scaler, *arguments, **options)
            if is_new:
                self._note_first(scaler)
            for lane in self._lanes:
                lane.rounds.loss_scale = self._scale_of(scaler)
            return returned

        return telling

    def _unscaling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Reduces the rest of a window before the scaler looks for infinities in it."""

        def unscaling(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> Any:
            self._begin(scaler, optimizer)
            self._reduce(scaler, optimizer, "unscale_()")
            # The float32 factor with which torch multiplies.
            factor = _as_float32(1.0 / self._scale_of(scaler))
            with ExitStack() as scaling:
                for lane in self._lanes:
                    scaling.enter_context(lane.scaling(parameters_of(optimizer), factor))
                return method(scaler, optimizer)

        return unscaling

    def _reducing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A fused optimizer unscales by itself, after step() has looked for infinities."""

        def reducing(
            scaler: torch.amp.GradScaler, optimizer: Any, *arguments: Any, **options: Any
        ) -> Any:
            self._begin(scaler, optimizer)
            self._reduce(scaler, optimizer, "step()")
            return method(scaler, optimizer, *arguments, **options)

        return reducing

    def _begin(self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        """Initializes the scale, which torch's scaler does only at its first loss: this worker may
        not have had one. It stays on the device where it is then."""
        if scaler.is_enabled() and scaler._scale is None:
            where = next((each.device for each in parameters_of(optimizer)), None)
            self._methods["scale"](scaler, torch.zeros((), device=where))
            self._note_first(scaler)

    def _scale_of(self, scaler: torch.amp.GradScaler) -> float:
        """The scale. It is read, which waits for a device behind all that it was given, only when
        it was written since it was last known: by update() or by load_state_dict(), so not between
        scale() and the end of the backward."""
        if not scaler.is_enabled() or scaler._scale is None:
            return scaler.get_scale()
        scale, version, value = self._known.get(scaler, (None, 0, 0.0))
        if scale is not scaler._scale or version != scaler._scale._version:
            value = scaler.get_scale()
            self._note(scaler, scaler._scale, value)
        return value

    def _note_first(self, scaler: torch.amp.GradScaler) -> None:
        """The scaler may just have got its scale."""
        if scaler._scale is not None:
            self._note(scaler, scaler._scale, _as_float32(scaler._init_scale))

    def _note(self, scaler: torch.amp.GradScaler, scale: torch.Tensor, value: float) -> None:
        self._known[scaler] = scale, scale._version, value

    def _reduce(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, call: str
    ) -> None:
        for lane in self._lanes:
            if lane.reduces_for(optimizer):
                if not lane.gradients.has_local():
                    lane.rounds.loss_scale = self._scale_of(
                        scaler
                    )  # It may have had no loss to scale.
                lane.reduce_for(optimizer, call)
                lane.check_loss_scale(self._scale_of(scaler), call)


def _as_float32(value: float) -> float:
    """The float32 that is nearest."""
    return ctypes.c_float(value).value

# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Callbacks of model.fit() with Horovod's names and arguments."""

from collections.abc import Callable
from typing import Any

import basin.keras
from basin.horovod import job
from basin.horovod.job import global_process_set
from basin.keras.backend import keras


class BroadcastGlobalVariablesCallback(basin.keras.BroadcastGlobalVariables):
    """Gives all workers the root's weights and optimizer when fit() begins.

    device: not used
    """

    def __init__(
        self, root_rank: int, device: str = "", process_set: Any = global_process_set
    ) -> None:
        call = "BroadcastGlobalVariablesCallback()"
        job.check_global(call, process_set)
        super().__init__(job.current(call), root_rank)


class MetricAverageCallback(basin.keras.MetricAverage):
    """Replaces what an epoch has measured by the mean over all workers.

    device: not used
    """

    def __init__(self, device: str = "", process_set: Any = global_process_set) -> None:
        call = "MetricAverageCallback()"
        job.check_global(call, process_set)
        super().__init__(job.current(call))


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to initial_lr times a multiplier.

    multiplier:  a function of the epoch, which has a fraction unless `staircase`; or a number, by
                 which the rate is multiplied again in each epoch after start_epoch
    start_epoch, end_epoch:
                 the rate is set from the first one on, and before the second one
    staircase:   only at the begin of an epoch; otherwise before each batch
    momentum_correction:
                 not used: Keras 3 compiles the momentum into the step
    steps_per_epoch:
                 with staircase=False; None: what fit() knows

    Raises ValueError without initial_lr, and if it cannot know the steps of an epoch.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("A schedule of the learning rate was given no initial_lr. Pass it.")
        self._initial_lr = initial_lr
        self._is_staircase = staircase
        self._multiplier = multiplier
        self._start_epoch = start_epoch
        self._end_epoch = end_epoch
        self._steps = steps_per_epoch
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._steps = self._steps or self.params.get("steps")
        if not self._is_staircase and not self._steps:
            raise ValueError(
                "A schedule of the learning rate does not know the number of steps of an epoch. "
                "Pass steps_per_epoch."
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        if self._is_staircase:
            self._set(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self._is_staircase:
            assert self._steps is not None
            self._set(self._epoch + batch / self._steps)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _set(self, epoch: float) -> None:
        if epoch < self._start_epoch or (self._end_epoch is not None and epoch >= self._end_epoch):
            return
        if callable(self._multiplier):
            factor = self._multiplier(epoch)
        else:
            factor = self._multiplier ** (epoch - self._start_epoch)
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # Otherwise the step would use the state that it has.
        self.model.optimizer.learning_rate = self._initial_lr * factor


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / size() to initial_lr, evenly over the first
    warmup_epochs.

    verbose: rank 0 prints a line when the rate has been reached

    The other arguments are those of LearningRateScheduleCallback.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # The rate of the last batch before the end of the warmup is initial_lr.
            assert self._steps is not None
            done = min(1.0, (epoch + 1.0 / self._steps) / warmup_epochs)
            size = job.size()
            return (1 + done * (size - 1)) / size

        super().__init__(
            initial_lr,
            multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self._is_verbose = verbose > 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self._is_verbose and epoch + 1 == self._end_epoch and job.rank() == 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: the warmup has ended at a learning rate of {rate:g}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """A ModelCheckpoint that keeps only the best model; `filepath` can be set later."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(
            filepath="best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            mode=mode,
            save_freq=save_freq,
        )


__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

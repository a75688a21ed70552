# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin for Transformers: its Trainer, whose processes are the workers of a Basin job.

trainer = basin.transformers.Trainer(model, args, train_dataset=data)

Another Trainer gets the same by a base before it:

class Trainer(basin.transformers.Distributed, trl.SFTTrainer): ...
"""

from typing import Any

import torch

import basin.torch
from basin.spec import Op
from basin.torch import context

try:
    import transformers.trainer
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"basin.transformers needs Transformers, but there is no module {missing.name}. Install "
        "it: pip install 'transformers==5.*' 'accelerate==1.15.*'",
        name=missing.name,
    ) from missing

from basin.accelerate import Accelerator


class Distributed:
    """A base to put before a Trainer of Transformers. Its constructor calls basin.torch.init(),
    unless the script has done so; the script calls basin.torch.shutdown() at its end.

    Raises Unsupported in a worker that joins a job which trains already: the Trainer counts epochs
    and batches itself, and cannot begin in the middle. Start the job again from a checkpoint.
    """

    control: Any
    state: Any
    _globalstep_last_logged: int

    def create_accelerator_and_postprocess(self) -> None:
        if not basin.torch.is_initialized():
            basin.torch.init()
        context.check_begins(
            "the Trainer of Transformers counts epochs and batches itself, and cannot begin in "
            "the middle",
            "resume_from_checkpoint",
        )
        # The Trainer names the class, and binds methods of the object in the same call.
        theirs = transformers.trainer.Accelerator
        transformers.trainer.Accelerator = Accelerator
        try:
            super().create_accelerator_and_postprocess()  # type: ignore[misc]
        finally:
            transformers.trainer.Accelerator = theirs

    def _maybe_log_save_evaluate(self, tr_loss: torch.Tensor, *args: Any, **options: Any) -> None:
        """Logs the loss of all workers instead of this one's."""
        if self.control.should_log and self.state.global_step > self._globalstep_last_logged:
            tr_loss.copy_(basin.torch.allreduce(tr_loss.detach(), op=Op.AVERAGE))
        super()._maybe_log_save_evaluate(tr_loss, *args, **options)  # type: ignore[misc]

    def _save_checkpoint(self, *args: Any, **options: Any) -> None:
        """Ends when rank 0 has written the checkpoint, and knows the best one."""
        super()._save_checkpoint(*args, **options)  # type: ignore[misc]
        self.state.best_model_checkpoint = basin.torch.broadcast_object(
            self.state.best_model_checkpoint, name="transformers"
        )


class Trainer(Distributed, transformers.Trainer):
    """transformers.Trainer, whose arguments it takes, with the workers of a Basin job."""

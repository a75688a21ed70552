# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedTrainer: a Trainer of Gluon whose gradients are reduced over all workers.

allreduce_grads() reduces, and update() applies; step() is both. The rescaling by the batch size and
by the optimizer's rescale_grad is Gluon's: it is done once, in the update, and a reduction knows
nothing of it.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from basin.arguments import string_of
from basin.client import Client
from basin.errors import FailedPrecondition, InvalidArgument, Unsupported
from basin.mxnet.nd import gluon
from basin.mxnet.rounds import CALL, Gradient, Rounds
from basin.spec import (
    AVERAGES,
    Counts,
    Op,
    ReductionOptions,
    RoundSpec,
    contribution,
    op_of,
    reduction,
)
from basin.worker import RoundInfo, logger

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Numbers of an optimizer that are not compared: its learning rate is compared with its schedule.
_NOT_COMPARED = {"lr", "aggregate_num"}


class _Absent:
    """Stands for a parameter without values in an update."""

    grad_req = "null"


class DistributedTrainer(gluon.Trainer):
    """As gluon.Trainer without a kvstore. All workers of the job make its calls together."""

    _params: list[Any]  # Gluon's.

    def __init__(
        self,
        client: Client,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        *,
        op: Op,
        name: str = "gradients",
        wire_dtype: str | None = None,
        check_optimizer: bool = True,
        **options: "Unpack[ReductionOptions]",
    ) -> None:
        """
        client:  of basin.connect()
        params:  net.collect_params(); with equal names, dtypes and shapes on all workers. Their
                 initialization may be deferred
        optimizer, optimizer_params:
                 as for gluon.Trainer
        op:      how gradients are reduced. With basin.Sum, step(batch_size) takes the samples of
                 all workers; with basin.Average those of one, which are as many on each. With
                 basin.WeightedAverage, which takes weight_by and contributes, contribute() says the
                 counts of a gradient
        name:    all workers use the same
        wire_dtype:
                 None, or "float16", in which gradients of float32 and float64 are sent; the sum is
                 computed in float32. Sparse gradients are sent as they are
        check_optimizer:
                 a worker whose optimizer has another learning rate, rescaling, number of updates
                 or the like gets Mismatch with both numbers. False: they are not compared
        options: as for Client.allreduce()

        A parameter that no backward has reached since the last update is skipped on this worker,
        and gets the result of the others. If no worker has reached it, ignore_stale_grad=True
        leaves it as it is, and otherwise the update raises FailedPrecondition.

        grad_req="add" adds up the gradients of several backwards; as without Basin, zero_grad() has
        to follow each update. Sparse gradients (Embedding(sparse_grad=True)) take a plain sum or
        average: the rows of all workers are gathered, and those of the same index are added up.

        Raises InvalidArgument for another op, and Unsupported for sparse parameters, several
        contexts, and sparse gradients with other options.
        """
        spec = reduction(CALL, op, options)
        string_of("name", name)
        if op_of(op) not in (*AVERAGES, Op.SUM):
            raise InvalidArgument(
                f"{CALL} cannot reduce gradients with {op_of(op).name}. Use basin.Average, "
                "basin.Sum or basin.WeightedAverage."
            )
        if wire_dtype not in (None, "float16"):
            raise InvalidArgument(
                f'{CALL} was given wire_dtype={wire_dtype!r}. Use None or "float16".'
            )
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        self._client, self._spec = client, spec
        self._rounds = Rounds(client, name, wire_dtype)
        self._check_optimizer = check_optimizer
        self._check_parameters()
        self._counts: Counts | None = None
        self._info: RoundInfo | None = None
        self._reduced: set[str] = set()  # Whose gradients are results that no update has applied.
        self._warned = False

    def contribute(
        self,
        samples: int | None = None,
        tokens: int | None = None,
        micro_batches: int | None = None,
    ) -> None:
        """Says how much is in the gradients of the next reduction of this worker. The facts of the
        round have the sums over all workers; a weighted average needs the count that is its
        weight, with 0 if there was none."""
        self._counts = Counts(samples, tokens, micro_batches).check_contributed()

    def last_round(self) -> RoundInfo:
        """The facts of the last reduction of dense gradients. Raises FailedPrecondition before the
        first one."""
        if self._info is None:
            raise FailedPrecondition(
                f"last_round() of {CALL} was called before a reduction. Call step() or "
                "allreduce_grads() first."
            )
        return self._info

    def _check_parameters(self) -> None:
        plain = replace(self._spec, prescale=1.0, postscale=1.0)
        for each in self._params:
            if each._stype != "default":
                raise Unsupported(
                    f"Parameter {each.name} has stype {each._stype}, which Gluon updates in a "
                    "kvstore. Use a dense parameter; its gradient may be sparse."
                )
            if each.grad_req == "null" or each._grad_stype == "default":
                continue
            if each._grad_stype != "row_sparse" or plain not in (
                RoundSpec(Op.SUM),
                RoundSpec(Op.AVERAGE),
            ):
                raise Unsupported(
                    f"The gradient of parameter {each.name} has stype {each._grad_stype}, and "
                    "rows have a plain sum or average only. Use op=basin.Sum or op=basin.Average "
                    "without weights and predivision, or a dense gradient: "
                    "Embedding(sparse_grad=False)."
                )
        if self._contexts is not None and len(self._contexts) > 1:
            raise Unsupported(
                f"{CALL} was given parameters on {len(self._contexts)} contexts. Give each worker "
                "one context, and start a worker for each: basin-run -n 4 -- python train.py"
            )

    def _trained(self) -> list[Any]:
        """The parameters that have a gradient, or will have one."""
        return [each for each in self._params if each.grad_req != "null"]

    # ---- what Gluon calls

    def _init_kvstore(self) -> None:
        # That of Gluon asks for the values of all parameters, which some may not have yet.
        self._kvstore, self._update_on_kvstore, self._distributed = None, None, False
        self._params_to_init: list[Any] = []
        self._kv_initialized = True

    def _allreduce_grads(self) -> None:
        trained = self._trained()
        present = [each for each in trained if each._data is not None]
        absent = [each.name for each in trained if each._data is None]
        self._client.take_part(f"allreduce_grads() of {CALL}")
        self._warn_of_division()
        spec = contribution(self._spec, self._counts)
        if self._check_optimizer:
            spec = replace(spec, optimizer=_numbers_of(self._optimizer))
        scaler = getattr(self, "_amp_loss_scaler", None)
        if scaler is not None:
            spec = replace(spec, loss_scale=float(scaler.loss_scale))
        dense = [_gradient_of(each) for each in present if each._grad_stype == "default"]
        reduced, self._info = self._rounds.reduce(dense, absent, spec)
        self._counts = None
        for each in present:
            if each._grad_stype != "default" and self._rounds.reduce_rows(_gradient_of(each), spec):
                reduced.add(each.name)
        # From now on only another backward makes a gradient new.
        for each in present:
            each._data[0]._fresh_grad = False
        self._reduced |= reduced

    def _update(self, ignore_stale_grad: bool = False) -> None:
        self._check_reduced(ignore_stale_grad)
        present = [each for each in self._trained() if each._data is not None]
        for each in present:
            each._data[0]._fresh_grad = each.name in self._reduced
        params = self._params
        self._params = [_Absent() if each._data is None else each for each in params]
        try:
            super()._update(ignore_stale_grad=True)
        finally:
            self._params = params
        for each in present:  # A scaler of amp may have refused the update.
            each._data[0]._fresh_grad = False
        self._reduced.clear()

    def _check_reduced(self, ignore_stale_grad: bool) -> None:
        for each in self._trained():
            if each._data is not None and each._data[0]._fresh_grad:
                raise FailedPrecondition(
                    f"The gradient of parameter {each.name} is of this worker alone: a backward "
                    "has written it after the last reduction. Call step(), or allreduce_grads() "
                    "after the last backward and before update()."
                )
            if not ignore_stale_grad and each.name not in self._reduced:
                raise FailedPrecondition(
                    f"Parameter {each.name} has no gradient: on no worker has a backward reached "
                    "it since the last update. If the net uses it in some steps only, call "
                    "step(batch_size, ignore_stale_grad=True); if never, set its grad_req to "
                    '"null".'
                )

    # ---- errors of a script

    def _warn_of_division(self) -> None:
        """A script that divides by the number of workers does so again after an average."""
        workers = self._client.world_size
        if self._warned or self._spec.op != Op.AVERAGE or workers == 1:
            return
        if abs(self._scale * workers - 1) < 1e-6:
            self._warned = True
            logger.warning(
                "divided again: rescale_grad of the optimizer is 1/%d, and the gradients of %s "
                "are an average over %d workers already. Omit it, or use op=basin.Sum",
                workers,
                CALL,
                workers,
            )


def _gradient_of(parameter: Any) -> Gradient:
    is_new = bool(parameter._data[0]._fresh_grad)
    return Gradient(parameter.name, parameter._grad[0], is_new)


def _numbers_of(optimizer: Any) -> str:
    """The numbers of an optimizer, one in each line, with six digits, because two machines may
    compute the last bits of a schedule differently."""
    numbers = {"learning_rate": optimizer.learning_rate}
    for key, value in vars(optimizer).items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and not key.startswith("_") and key not in _NOT_COMPARED:
            numbers[key] = value
    return "\n".join(f"{key}={float(value):.6g}" for key, value in sorted(numbers.items()))

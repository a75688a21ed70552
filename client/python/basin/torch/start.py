# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The start of the reduction of gradients, shared by the three ways to request it."""

from collections.abc import Iterable, Mapping

import torch

from basin import __version__, notices
from basin.arguments import whole_number
from basin.errors import FailedPrecondition, InvalidArgument, Unsupported
from basin.lane.accumulation import AS_SUMS, check_passes, may_accumulate
from basin.spec import (
    AVERAGES,
    Op,
    ReductionOptions,
    RoundSpec,
    Weight,
    op_of,
    reduction,
)
from basin.torch import context, raw, row_gradients
from basin.torch.batch import batch_bytes
from basin.torch.buffers import BufferLane
from basin.torch.lane import GradientLane
from basin.torch.parameter_values import check_every
from basin.torch.rounds import TensorRounds
from basin.torch.store import TensorStore

_LANE = "gradients"
_WIRE_DTYPES = {None, torch.float32, torch.bfloat16, torch.float16}
_DIVISORS = {
    Weight.NONE: "the number of workers",
    Weight.SAMPLES: "the samples of all",
    Weight.TOKENS: "the tokens of all",
    Weight.MICRO_BATCHES: "the micro-batches of all",
}


def start_lane(
    names: Mapping[torch.Tensor, str],
    op: Op,
    wire_dtype: torch.dtype | None,
    batch_size: int | None,
    *,
    call: str,
    owner: str,
    options: ReductionOptions,
    passes: int = 1,
    target_batch: int | None = None,
    own_hooks: bool = True,
    optimizer: torch.optim.Optimizer | None = None,
    module: torch.nn.Module | None = None,
    send_buffers: bool = False,
    same_parameters: bool = True,
    check_optimizer: bool = False,
    check_parameters: int = 0,
    sparse_as_dense: bool = False,
    sparse_gradients: bool | None = None,
) -> GradientLane:
    """Creates the lane of these parameters and writes the line at the start, for a `call` of the
    user. The other arguments are those of Lane and TensorStore. With send_buffers, its rounds also
    send the buffers of the `module`.
    """
    here = context.member(call)
    if not isinstance(wire_dtype, torch.dtype | None) or wire_dtype not in _WIRE_DTYPES:
        raise InvalidArgument(
            f"wire_dtype cannot be {wire_dtype!r}. Use torch.bfloat16, torch.float16 or None."
        )
    check_passes(passes)
    if op_of(op) not in (*AVERAGES, Op.SUM):
        raise InvalidArgument(
            f"Gradients cannot be reduced with {op_of(op).name}. Use basin.Average, basin.Sum or "
            "basin.WeightedAverage."
        )
    check_every(check_parameters)
    spec = reduction(call, op, options)
    if target_batch is not None:
        _check_target(target_batch, passes, spec)
        passes = 0
    if passes > 1 and not may_accumulate(spec):
        raise InvalidArgument(
            f"backward_passes_per_step={passes} adds the gradients of micro-batches, and a sum of "
            f"means is not a mean. Use sums. {AS_SUMS[spec.weight_by]}"
        )
    for parameter, name in names.items():
        if any(lane.knows(parameter) for lane in here.lanes):
            raise FailedPrecondition(
                f"Parameter {name} is already reduced by another DistributedOptimizer, "
                "DistributedDataParallel or DDPState, also if that was deleted. Use one of them, "
                "once for each model: another optimizer of the same parameters, for the next phase "
                "of a training, is an optimizer of torch without it."
            )
    count = here.lanes_made
    lane_name = _LANE if count == 0 else f"{_LANE}.{count}"
    worker = here.client.worker
    full = batch_bytes(sum(each.nbytes for each in names))
    buffers = None
    if module is not None and send_buffers:
        buffers = BufferLane(worker, lane_name + ".buffers", module)
    modules = here.state.modules if module is None else lambda: [module]

    def may_be_sparse() -> bool:
        if sparse_as_dense or sparse_gradients is not None:
            return bool(sparse_gradients) and not sparse_as_dense
        return row_gradients.may_be_sparse(optimizer, modules(), names)

    store = TensorStore(
        worker,
        lane_name,
        names,
        owner=owner,
        own_hooks=own_hooks,
        modules=modules,
        optimizer=optimizer,
        lazy=here.state.lazy,
        compared=same_parameters,
        optimizer_compared=check_optimizer,
        parameters_compared=check_parameters,
        sparse_as_dense=sparse_as_dense,
    )
    rounds = TensorRounds(
        worker,
        lane_name,
        spec,
        store,
        here.state,
        None if wire_dtype == torch.float32 else wire_dtype,
        full,
        buffers,
        first=not here.lanes,
        client=here.client,
        may_be_sparse=may_be_sparse,
    )
    lane = GradientLane(store, rounds, lane_name, spec, passes, owner, full, here.timeout)
    if target_batch is not None and rounds.node.groups_ranks:
        lane.close()
        raise Unsupported(
            "target_batch needs rounds in which each rank contributes for itself, but local_group="
            "(BASIN_LOCAL_GROUP) reduces the ranks of this node to one contribution. Use "
            'local_group="off", or backward_passes_per_step.'
        )
    lane.start()
    here.lanes.append(lane)
    here.lanes_made += 1
    _report(here, spec, passes, target_batch, wire_dtype, batch_size, names)
    return lane


def _check_target(target_batch: object, passes: int, spec: RoundSpec) -> None:
    if not whole_number(target_batch):
        raise InvalidArgument(
            f"target_batch cannot be {target_batch!r}. Use a whole number of samples, from 1."
        )
    if passes != 1:
        raise InvalidArgument(
            f"target_batch={target_batch} and backward_passes_per_step={passes} both say when a "
            "window of micro-batches ends. Use one of them."
        )
    if spec.weight_by != Weight.SAMPLES or not spec.contributes_sum:
        raise InvalidArgument(
            f"target_batch={target_batch} lets workers accumulate different numbers of samples, so "
            "that only sums over samples give the mean of the batch. Make each loss the sum over "
            'its samples, and use op=basin.WeightedAverage, weight_by="samples", contributes="sum".'
        )


def _report(
    here: context.Context,
    spec: RoundSpec,
    passes: int,
    target_batch: int | None,
    wire_dtype: torch.dtype | None,
    batch_size: int | None,
    parameters: Iterable[torch.Tensor],
) -> None:
    """Writes one line that makes a wrong start visible at once. Some defaults are omitted."""
    place = here.client.place
    options = here.client.worker.options
    wire = str(wire_dtype or "same").removeprefix("torch.")
    others = {
        raw.gradient_dtype(each) for each in parameters if each.dtype != raw.gradient_dtype(each)
    }
    wire += "".join(
        f", grad_dtype {each}".replace("torch.", "") for each in sorted(others, key=str)
    )
    window = f"{passes} backwards per step, " if passes > 1 else ""
    batch = "unknown" if batch_size is None else f"{batch_size} of this worker"
    if target_batch is not None:
        batch = f"of {target_batch} samples of all workers"
    least = options["min_workers"] if options["min_workers"] not in ("", "0") else "max"
    line = (
        f"basin: worker {here.client.worker_id} of job {options['job']}: rank {place.rank} of "
        f"{place.world_size} (min {least}, max {options['max_workers']}), {_reduction_of(spec)}, "
        f"wire dtype {wire}, {window}batch {batch}, basin {__version__}, torch "
        f"{torch.__version__}"
    )
    notices.tell(line)


def _reduction_of(spec: RoundSpec) -> str:
    kind, divisor = "", "nothing"
    if spec.op == Op.WEIGHTED_AVERAGE:
        kind = " of sums" if spec.contributes_sum else " of means"
    if spec.op != Op.SUM:
        divisor = _DIVISORS[spec.weight_by]
    if spec.divide_by_present:
        divisor += " that have reached a parameter"
    factors = {
        "prescale": spec.prescale,
        "postscale": spec.postscale,
        "predivide": spec.predivide,
    }
    scales = (
        f", {name} {'auto' if factor is None else f'{factor:g}'}"
        for name, factor in factors.items()
        if factor != 1.0
    )
    return f"op {spec.op}{kind}, divided by {divisor}{''.join(scales)}"

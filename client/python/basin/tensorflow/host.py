# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Calls of Basin in a program of TensorFlow: at once when it executes eagerly, and as an operation
within tf.function, which runs the call each time the function runs.

Calls without a name are matched by their order, so these operations run one after the other, in the
order of the program. TensorFlow promises that only for operations on the same resource, also
through the functions, conditions and loops that use it: each operation lies between two writes to
one variable of its client.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from basin._library import check_beside_tensorflow
from basin.client import Client
from basin.errors import Unsupported

try:
    import tensorflow as tf
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"basin.tensorflow needs TensorFlow, but there is no module {missing.name}. Install it: "
        "pip install tensorflow",
        name=missing.name,
    ) from missing

check_beside_tensorflow()

# By client: the variable that orders its operations. TensorFlow can only order what is in one.
_orders: "weakref.WeakKeyDictionary[Client, Any]" = weakref.WeakKeyDictionary()


def run(
    client: Client,
    call: str,
    function: Callable[[list[Any]], Sequence[Any]],
    inputs: Sequence[Any],
    outputs: Sequence[tuple[Any, Any]],
) -> list[Any]:
    """Returns the arrays that the function returns, as tensors.

    function: gets the inputs as NumPy arrays, which it may keep; it may wait for other workers
    outputs:  the dtype of each array, and what is known of its shape

    Eagerly, errors of the function are raised as they are. Within tf.function TensorFlow raises an
    error of its own, whose text has theirs. Raises Unsupported where no function can run: in code
    that XLA compiles, in graphs of TensorFlow 1, and in replicas of tf.distribute.
    """
    if tf.distribute.has_strategy():
        raise Unsupported(
            f"{call} was used in tf.distribute, whose replicas are in one process. Omit the "
            "strategy, and start a worker for each device: basin-run -n 4 -- python train.py"
        )
    dtypes = [dtype for dtype, _ in outputs]

    def call_back(*given: Any) -> list[Any]:
        made = function(list(given))
        return [
            np.asarray(each, dtype.as_numpy_dtype) for each, dtype in zip(made, dtypes, strict=True)
        ]

    if tf.executing_eagerly():
        received = call_back(*(each.numpy() for each in inputs))
        return [tf.convert_to_tensor(each) for each in received]
    _check_graph(call, tf.compat.v1.get_default_graph())
    order = _order_of(client)
    with tf.control_dependencies([order.assign_add(1, read_value=False)]):
        made = tf.numpy_function(call_back, list(inputs), dtypes, stateful=True)
    with tf.control_dependencies(made):
        order.assign_add(1, read_value=False)
    for tensor, (_, shape) in zip(made, outputs):
        tensor.set_shape(shape)
    return list(made)


def _check_graph(call: str, graph: Any) -> None:
    if not graph.building_function:
        raise Unsupported(
            f"{call} was used in a graph of TensorFlow 1, which a session runs. Use it eagerly or "
            "within tf.function: omit disable_eager_execution() and tf.compat.v1.Session."
        )
    if _is_compiled(graph):
        raise Unsupported(
            f"{call} cannot be in code that XLA compiles, which calls no other worker. Use "
            "jit_compile=False, in tf.function or in model.compile()."
        )


def _is_compiled(graph: Any) -> bool:
    """Whether this function, or one that it is traced for, has jit_compile=True."""
    while graph is not None:
        context = graph._get_control_flow_context()
        if context is not None and context.IsXLAContext():
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def _order_of(client: Client) -> Any:
    order = _orders.get(client)
    if order is None:
        with tf.init_scope(), tf.device("CPU:0"):
            order = tf.Variable(0, trainable=False, dtype=tf.int64, name="basin_order")
        _orders[client] = order
    return order

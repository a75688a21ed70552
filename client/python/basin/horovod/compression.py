# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How tensors are made smaller before they are sent: what all frameworks have, and the compressions
of TensorFlow. Gradients of Keras, on any of its backends, have the same names."""

from typing import Any

from basin.errors import Unsupported


class Compressor:
    """What a compression of allreduce() and the like has to have.

    wire_dtype: of a compression of Basin, the dtype in which it sends gradients; None: their own
    """

    wire_dtype: str | None

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns what to send, and what decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Makes the result from what was received."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends the tensor as it is."""

    wire_dtype = None

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating numbers as float16. The sum is computed in float32, and rounded once."""

    wire_dtype = "float16"

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        from basin.tensorflow.host import tf

        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        from basin.tensorflow.host import tf

        return tf.cast(tensor, ctx)


class Compression:
    """The compressions by name: none and fp16."""

    none = NoneCompressor
    fp16 = FP16Compressor


def wire_dtype_of(call: str, compression: Any) -> str | None:
    """That of gradients. Raises Unsupported for other compressions than those of Basin, also for
    ones that are derived from them."""
    kind: Any = compression if isinstance(compression, type) else type(compression)
    if "wire_dtype" not in vars(kind):
        raise Unsupported(
            f"{call} cannot send gradients with {compression!r}. Use Compression.none or "
            "Compression.fp16, or reduce with allreduce() what your own has made smaller."
        )
    dtype: str | None = kind.wire_dtype
    return dtype

# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How tensors of TensorFlow are made smaller before they are sent. Gradients of Keras, on any of
its backends, have the same names."""

from typing import Any

from basin.errors import Unsupported


class Compressor:
    """What a compression of allreduce() and the like has to have."""

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

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating numbers as float16. The sum is computed in float32, and rounded once."""

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
    """That of gradients. Raises Unsupported for other compressions than those above."""
    if compression is NoneCompressor or isinstance(compression, NoneCompressor):
        return None
    if compression is FP16Compressor or isinstance(compression, FP16Compressor):
        return "float16"
    raise Unsupported(
        f"{call} cannot send gradients with {compression!r}. Use Compression.none or "
        "Compression.fp16; allreduce() takes compressions of your own."
    )

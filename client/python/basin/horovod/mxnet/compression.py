# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How arrays are made smaller before they are sent."""

from typing import Any

import numpy as np

from basin.errors import Unsupported
from basin.horovod.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    """Sends floating numbers as float16. The sum is computed in float32, and rounded once."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        is_floating = np.dtype(tensor.dtype).kind == "f"
        return (tensor.astype("float16") if is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor.astype(ctx)


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
        "Compression.fp16."
    )

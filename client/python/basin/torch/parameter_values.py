# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The values of the parameters before every n-th step, as a text that is equal on workers whose
models are.

Workers that average gradients of different models train none of them. A checksum of each parameter
takes one pass over its memory, so it is made in few steps. The checksum finds what differs by
mistake, not by intent.
"""

from collections.abc import Callable, Mapping

import torch

from basin.errors import InvalidArgument
from basin.torch import raw

PARAMETER = "parameter "  # How each line begins.


class ParameterValues:
    """`names_of`: returns the present parameters; `every`: the steps from one comparison to the
    next."""

    def __init__(self, names_of: Callable[[], Mapping[torch.Tensor, str]], every: int) -> None:
        self._names_of = names_of
        self._every = every

    def text(self, step: int) -> str:
        """One line for each parameter, before the step with this number; empty if they are not
        compared then."""
        if step <= 0 or step % self._every != 0:
            return ""
        return "\n".join(
            f"{PARAMETER}{name} with the checksum {raw.checksum(parameter):016x}"
            for parameter, name in sorted(self._names_of().items(), key=lambda item: item[1])
            if not torch.nn.parameter.is_lazy(parameter)
        )


def check_every(every: int) -> None:
    if isinstance(every, bool) or not isinstance(every, int) or every < 0:
        raise InvalidArgument(
            f"check_parameters cannot be {every!r}. Use the number of steps from one comparison of "
            "the parameters to the next, such as 100, or 0 for none."
        )

# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Questions for what Horovod was built with, and its timeline: Basin has its own transport and its
own timeline."""

from basin.errors import Unsupported


def mpi_threads_supported() -> bool:
    """False, like all questions for what Horovod was built with: Basin has a transport of its
    own."""
    return False


def mpi_enabled() -> bool:
    """False: MPI is not used."""
    return False


def mpi_built() -> bool:
    """False: there is no MPI."""
    return False


def gloo_enabled() -> bool:
    """False: Gloo is not used."""
    return False


def gloo_built() -> bool:
    """False: there is no Gloo."""
    return False


def nccl_built() -> int:
    """0; Horovod returns the version of NCCL as a number."""
    return 0


def ddl_built() -> bool:
    """False: there is no DDL."""
    return False


def ccl_built() -> bool:
    """False: there is no oneCCL."""
    return False


def cuda_built() -> bool:
    """False: no call needs CUDA."""
    return False


def rocm_built() -> bool:
    """False: no call needs ROCm."""
    return False


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Raises Unsupported: a timeline is written from the start on."""
    raise Unsupported(
        "start_timeline() is not possible: Basin writes a timeline from the start of a worker on. "
        "Set BASIN_TIMELINE to a folder before you start the workers, and omit the call."
    )


def stop_timeline() -> None:
    """Raises Unsupported; see start_timeline()."""
    raise Unsupported(
        "stop_timeline() is not possible: a timeline ends with its worker. Omit the call."
    )

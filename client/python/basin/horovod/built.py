# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Questions for what Horovod was built with: Basin has a transport of its own."""


def mpi_threads_supported() -> bool:
    """False, as the answer is to all of these questions."""
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

# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# How the device code is compiled, here and in the program that is tested on a machine with nothing
# but a compiler and a GPU (tests/kernels/cuda/standalone).

# The arithmetic contract: each operation rounds once, subnormals stay, quotients are right.
set(basin_cuda_flags -fmad=false -ftz=false -prec-div=true -prec-sqrt=true)
# The arithmetic is constexpr functions of ordinary headers.
list(APPEND basin_cuda_flags --expt-relaxed-constexpr --threads=2)

# Turing to Blackwell, and PTX from which the driver makes code for what comes later.
if(NOT DEFINED BASIN_CUDA_ARCHITECTURES)
  set(BASIN_CUDA_ARCHITECTURES 75-real 80-real 90-real 100)
endif()

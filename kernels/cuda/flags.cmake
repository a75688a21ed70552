# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# The compiler flags of the device code, also used by tests/kernels/cuda/standalone, for machines
# with only a compiler and a GPU.

# The arithmetic contract: each operation rounds once, subnormals are kept, quotients are correctly
# rounded.
set(basin_cuda_flags -fmad=false -ftz=false -prec-div=true -prec-sqrt=true)
# The arithmetic consists of constexpr functions in ordinary headers.
list(APPEND basin_cuda_flags --expt-relaxed-constexpr --threads=2)

# Turing to Blackwell, and PTX from which the driver compiles code for later architectures.
if(NOT DEFINED BASIN_CUDA_ARCHITECTURES)
  set(BASIN_CUDA_ARCHITECTURES 75-real 80-real 90-real 100)
endif()

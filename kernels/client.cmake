# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# The operations of both ends on a payload besides the reduction: checksums and digests, the norm,
# copies, and the casts to and from 16-bit wire dtypes. Needs xxHash and the standard library.

# xxHash chooses vector instructions at run time if it was built with its x86 dispatcher.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES xxHash::xxhash)
check_cxx_source_compiles("
  #include <xxh_x86dispatch.h>
  int main() { return static_cast<int>(XXH3_64bits(\"\", 0)); }" BASIN_XXHASH_DISPATCHES)
unset(CMAKE_REQUIRED_LIBRARIES)
if(BASIN_XXHASH_DISPATCHES)
  set(xxh3_source xxh3_dispatch.cc)
else()
  set(xxh3_source xxh3_plain.cc)
  message(STATUS "Basin: XXH3 with the vector instructions that xxHash was compiled for")
endif()

basin_library(basin_kernels_client
  SRCS cast.cc checksum.cc copy.cc norm.cc ${xxh3_source}
  HDRS cast.h checksum.h copy.h float16_branchless.h norm.h xxh3.h
  DEPS basin_kernels_contract xxHash::xxhash)

# Optimised in every build, because every byte passes through it. A fused multiply-add would round
# once where the definition rounds twice; honouring floating-point traps would keep loops scalar.
set_source_files_properties(cast.cc copy.cc norm.cc PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off;-fno-trapping-math")

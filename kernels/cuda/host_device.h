// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Marks functions that run on the device and on the host. The host compiles them too so that the
// tests can run a kernel's arithmetic and indexing where there is no device. BASIN_DEVICE marks
// what nvcc compiles for the device alone, because it waits for other threads; the tests compile it
// with another compiler.

#ifndef BASIN_KERNELS_CUDA_HOST_DEVICE_H_
#define BASIN_KERNELS_CUDA_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define BASIN_HOST_DEVICE __host__ __device__ __forceinline__
#define BASIN_DEVICE __device__ __forceinline__
#define BASIN_UNROLL _Pragma("unroll")
#else
#define BASIN_HOST_DEVICE inline
#define BASIN_DEVICE inline
#define BASIN_UNROLL
#endif

#endif  // BASIN_KERNELS_CUDA_HOST_DEVICE_H_

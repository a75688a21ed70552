/* Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
 *
 * What a build of libbasin for tests has besides basin.h: CUDA devices 0 and 1 made of host memory,
 * with streams, errors, and delays. Tests in C, C++ and Python play the trainer's own CUDA with it.
 *
 * Thread contract: any thread.
 */
#ifndef BASIN_TESTS_CLIENT_C_EMULATED_CUDA_H_
#define BASIN_TESTS_CLIENT_C_EMULATED_CUDA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BASIN_EMULATED __attribute__((visibility("default")))

/* Memory of a device. */
BASIN_EMULATED void* basin_emulated_allocate(int32_t device, size_t bytes);
BASIN_EMULATED void basin_emulated_free(void* memory);
/* For workers that connect later: all memory counts as that of every device. */
BASIN_EMULATED void basin_emulated_any_memory(int32_t any);

/* A stream of the trainer. Its work runs in order, on a thread of its own, unless it is held. */
BASIN_EMULATED void* basin_emulated_stream(int32_t device);
BASIN_EMULATED void basin_emulated_stream_free(void* stream);
BASIN_EMULATED void basin_emulated_add(void* stream, void (*work)(void* user), void* user);
/* Copies within the device, in the stream. */
BASIN_EMULATED void basin_emulated_copy(void* stream, void* to, const void* from, size_t bytes);
BASIN_EMULATED void basin_emulated_hold(void* stream, int32_t held);
BASIN_EMULATED void basin_emulated_synchronize(void* stream);
/* Whether the stream is being captured into a graph. */
BASIN_EMULATED void basin_emulated_capture(void* stream, int32_t captured);

/* The calls that the library has made of a device so far. Call `call` fails, or all from it on; -1:
 * none. */
BASIN_EMULATED int64_t basin_emulated_calls(int32_t device);
BASIN_EMULATED void basin_emulated_fail(int32_t device, int64_t call);
BASIN_EMULATED void basin_emulated_fail_from(int32_t device, int64_t call);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BASIN_TESTS_CLIENT_C_EMULATED_CUDA_H_ */

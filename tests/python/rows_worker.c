/* Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
 *
 * A worker that makes every call on rows through the C interface, and prints what it gets, as
 * rows_worker_cpp.cc does.
 *
 * usage: rows_worker [shared | lost]   shared: only the calls that a worker in Python makes as well
 *                                      lost: ends between the two rounds of an allgather */

#include <basin/basin.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostWorkers = 8, kSent = 3 };

static const int64_t kPatience = BASIN_SECONDS(120);

static void Check(basin_code code, basin_error** error) {
  if (code == BASIN_OK) return;
  fprintf(stderr, "%s: %s\n", basin_code_name(code), basin_error_message(*error));
  exit(1);
}

static void PrintFloats(const char* what, const basin_received* received, size_t part) {
  size_t bytes = 0;
  const float* numbers = basin_received_data(received, part, &bytes);
  printf("%s", what);
  for (size_t i = 0; i < bytes / sizeof(float); ++i) printf(" %d", (int)numbers[i]);
  printf("\n");
}

static void PrintIntegers(const char* what, const basin_received* received, size_t part) {
  size_t bytes = 0;
  const int64_t* numbers = basin_received_data(received, part, &bytes);
  printf("%s", what);
  for (size_t i = 0; i < bytes / sizeof(int64_t); ++i) printf(" %" PRId64, numbers[i]);
  printf("\n");
}

static basin_received* Wait(basin_worker* worker, uint32_t call) {
  basin_error* error = NULL;
  basin_received* received = NULL;
  const basin_code code = basin_wait_rows(worker, call, kPatience, &received, &error);
  Check(code, &error);
  return received;
}

/* The calls that workers in all languages make. */
static void MakeShared(basin_worker* worker, const basin_place* place, const int64_t* sent) {
  basin_error* error = NULL;
  uint32_t call = 0;

  const uint64_t shape[] = {place->rank, 2};
  const basin_tensor rows = {"rows", BASIN_F32, 2, shape};
  float mine[2 * kMostWorkers];
  for (uint32_t i = 0; i < 2 * place->rank; ++i) mine[i] = (float)place->rank;
  Check(basin_allgather(worker, &rows, mine, 2 * place->rank * sizeof(float), &call, &error),
        &error);
  basin_received* received = Wait(worker, call);
  for (size_t i = 0; i < basin_received_parts(received); ++i) {
    PrintFloats("allgather", received, i);
  }
  basin_received_free(received);

  const uint64_t three[] = {kSent};
  basin_tensor array = {"sent", BASIN_I64, 1, three};
  uint64_t splits[kMostWorkers];
  for (uint32_t i = 0; i < place->world_size; ++i) splits[i] = 1;
  splits[place->world_size - 1] = kSent + 1 - place->world_size;
  Check(basin_alltoall(worker, &array, sent, kSent * sizeof *sent, splits, place->world_size, &call,
                       &error),
        &error);
  received = Wait(worker, call);
  for (size_t i = 0; i < basin_received_parts(received); ++i) {
    PrintIntegers("alltoall", received, i);
  }
  basin_received_free(received);

  array.name = "sum";
  basin_round_spec spec = BASIN_ROUND_SPEC_INIT;
  spec.op = BASIN_SUM;
  Check(basin_reducescatter(worker, &array, &spec, sent, kSent * sizeof *sent, &call, &error),
        &error);
  received = Wait(worker, call);
  PrintIntegers("reducescatter", received, 0);
  basin_received_free(received);

  array.name = "said";
  Check(basin_broadcast_rows(worker, &array, 1, sent, kSent * sizeof *sent, &call, &error), &error);
  received = Wait(worker, call);
  PrintIntegers("broadcast", received, 0);
  basin_received_free(received);
}

/* Calls that are refused, of two workers. */
static void MakeRefused(basin_worker* worker, const basin_place* place, const int64_t* sent) {
  basin_error* error = NULL;
  uint32_t call = 0;
  const uint64_t three[] = {kSent};
  /* Another dtype on each worker. */
  basin_tensor array = {"other", place->rank == 0 ? BASIN_I64 : BASIN_F64, 1, three};
  Check(basin_allgather(worker, &array, sent, kSent * sizeof *sent, &call, &error), &error);
  basin_received* received = NULL;
  basin_code code = basin_wait_rows(worker, call, kPatience, &received, &error);
  printf("%s %s\n", basin_code_name(code), basin_error_message(error));
  basin_error_free(error);

  array.name = "splits";
  const uint64_t splits[] = {1};
  code = basin_alltoall(worker, &array, sent, kSent * sizeof *sent, splits, 1, &call, NULL);
  printf("%s\n", basin_code_name(code));
}

/* Without the outcome of the first round, the second one is not begun. */
static void EndBetweenTheRounds(basin_worker* worker, const int64_t* sent) {
  basin_error* error = NULL;
  uint32_t call = 0;
  const uint64_t three[] = {kSent};
  const basin_tensor array = {"lost", BASIN_I64, 1, three};
  Check(basin_allgather(worker, &array, sent, kSent * sizeof *sent, &call, &error), &error);
  basin_result* result = NULL;
  Check(basin_wait(worker, call, kPatience, &result, &error), &error);
  _Exit(0);
}

int main(int argc, char** argv) {
  basin_error* error = NULL;
  basin_options* options = basin_options_new(BASIN_READ_ENVIRONMENT);
  basin_worker* worker = NULL;
  Check(basin_connect(options, &worker, &error), &error);
  basin_options_free(options);
  Check(basin_ready(worker, 0, 0, &error), &error);
  Check(basin_await_member(worker, kPatience, &error), &error);
  basin_place place = BASIN_PLACE_INIT;
  Check(basin_get_place(worker, &place, &error), &error);
  if (place.world_size > kSent) return 1;

  const int64_t base = 10 * (int64_t)place.rank;
  const int64_t sent[kSent] = {base, base + 1, base + 2};
  if (argc > 1 && strcmp(argv[1], "lost") == 0) EndBetweenTheRounds(worker, sent);
  MakeShared(worker, &place, sent);
  if (argc == 1) MakeRefused(worker, &place, sent);

  Check(basin_barrier(worker, "end", kPatience, &error), &error);
  Check(basin_finished(worker, &error), &error);
  Check(basin_leave(worker, &error), &error);
  basin_close(worker);
  return 0;
}

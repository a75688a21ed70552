/* Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
 *
 * Gathers the scores of all workers, of which each has another number, and prints their mean.
 *
 *   basind &
 *   BASIN_ADDRESS=127.0.0.1:29600 BASIN_MAX_WORKERS=2 BASIN_WORKER_ID=a ./allgather &
 *   BASIN_ADDRESS=127.0.0.1:29600 BASIN_MAX_WORKERS=2 BASIN_WORKER_ID=b ./allgather
 */

#include <basin/basin.h>
#include <inttypes.h>
#include <stdio.h>

enum { kMost = 16 };

static const int64_t kPatience = BASIN_SECONDS(300);

/* Those of this worker. The library may read them until the call has an outcome. */
static double scores[kMost];

/* Computes the scores, one more than on the rank before, and returns how many there are. */
static uint64_t Evaluate(uint32_t rank) {
  uint64_t count = 0;
  for (; count <= rank && count < kMost; ++count) scores[count] = 10.0 * rank + (double)count;
  return count;
}

/* The scores of all workers, which are the rows of one array. */
static basin_code Gather(basin_worker* worker, basin_received** received, basin_error** error) {
  basin_place place = BASIN_PLACE_INIT;
  basin_code code = basin_get_place(worker, &place, error);
  if (code != BASIN_OK) return code;

  const uint64_t shape[] = {Evaluate(place.rank)};
  const basin_tensor rows = {"scores", BASIN_F64, 1, shape};
  uint32_t call = 0;
  code = basin_allgather(worker, &rows, scores, shape[0] * sizeof *scores, &call, error);
  return code == BASIN_OK ? basin_wait_rows(worker, call, kPatience, received, error) : code;
}

static void Print(const basin_received* received) {
  double sum = 0;
  uint64_t count = 0;
  for (size_t rank = 0; rank < basin_received_parts(received); ++rank) {
    const double* theirs = basin_received_data(received, rank, NULL);
    const uint64_t of_rank = basin_received_rows(received, rank);
    printf("rank %zu: %" PRIu64 " scores", rank, of_rank);
    for (uint64_t i = 0; i < of_rank; ++i) {
      printf(" %g", theirs[i]);
      sum += theirs[i];
    }
    printf("\n");
    count += of_rank;
  }
  printf("mean %g\n", sum / (double)count);
}

static basin_code Run(basin_worker** worker, basin_error** error) {
  basin_options* options = basin_options_new(BASIN_READ_ENVIRONMENT);
  basin_code code = basin_connect(options, worker, error);
  basin_options_free(options);
  if (code == BASIN_OK) code = basin_ready(*worker, 0, 0, error);
  if (code == BASIN_OK) code = basin_await_member(*worker, kPatience, error);
  basin_received* received = NULL;
  if (code == BASIN_OK) code = Gather(*worker, &received, error);
  if (code != BASIN_OK) return code;
  Print(received);
  basin_received_free(received);
  /* Every worker has the scores of all by now. */
  code = basin_finished(*worker, error);
  return code == BASIN_OK ? basin_leave(*worker, error) : code;
}

int main(void) {
  basin_worker* worker = NULL;
  basin_error* error = NULL;
  int status = 0;
  if (Run(&worker, &error) != BASIN_OK) {
    fprintf(stderr, "%s: %s\n", basin_code_name(basin_error_code(error)),
            basin_error_message(error));
    status = basin_exit_code(basin_error_code(error));
    basin_error_free(error);
  }
  basin_close(worker);
  return status;
}

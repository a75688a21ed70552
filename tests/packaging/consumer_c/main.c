/* Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
 *
 * Joins the job that the environment names, and adds up four numbers with all other workers. Prints
 * the rank, how many workers were counted, and the sum. */

#include <basin/basin.h>
#include <inttypes.h>
#include <stdio.h>

static int Fail(basin_error* error) {
  fprintf(stderr, "%s: %s\n", basin_code_name(basin_error_code(error)), basin_error_message(error));
  basin_error_free(error);
  return 1;
}

int main(void) {
  basin_error* error = NULL;
  basin_options* options = basin_options_new(BASIN_READ_ENVIRONMENT);
  basin_worker* worker = NULL;
  if (basin_connect(options, &worker, &error) != BASIN_OK) return Fail(error);
  basin_options_free(options);

  const uint64_t shape[] = {2, 2};
  const basin_tensor tensor = {"numbers", BASIN_F64, 2, shape};
  uint32_t lane = 0;
  uint32_t handle = 0;
  if (basin_register(worker, "model", BASIN_GRADIENT, &tensor, 1, &lane, &handle, &error) !=
          BASIN_OK ||
      basin_ready(worker, 0, 0, &error) != BASIN_OK ||
      basin_await_member(worker, BASIN_SECONDS(60), &error) != BASIN_OK) {
    return Fail(error);
  }
  basin_place place = BASIN_PLACE_INIT;
  if (basin_get_place(worker, &place, &error) != BASIN_OK) return Fail(error);

  double numbers[] = {1, 2, 3, 4};
  basin_round_spec spec = BASIN_ROUND_SPEC_INIT;
  spec.op = BASIN_SUM;
  const basin_buffer buffer = {handle, numbers, numbers, sizeof numbers};
  basin_result* result = NULL;
  if (basin_allreduce(worker, lane, &spec, &buffer, 1, BASIN_SECONDS(60), &result, &error) !=
      BASIN_OK) {
    return Fail(error);
  }
  basin_round_info info = BASIN_ROUND_INFO_INIT;
  basin_result_info(result, &info);
  printf("rank %" PRIu32 " of %" PRIu32 ": %" PRIu32 " contributors, sum %g %g %g %g\n", place.rank,
         place.world_size, info.contributors, numbers[0], numbers[1], numbers[2], numbers[3]);
  basin_result_free(result);
  if (basin_leave(worker, &error) != BASIN_OK) return Fail(error);
  basin_close(worker);
  return 0;
}

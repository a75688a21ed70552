// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A loop of calls through the C interface, as the worker in test_calls_after_loss.py makes them:
// prints "member", then a line per call with the number of participants, until one of the workers
// has read a line.
//
// usage: call_worker LOOP     a letter is a sum by that name, `|` a barrier

#include <basin/basin.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/python/call_loop.h"

namespace {

struct Call {
  uint32_t lane = 0;
  uint32_t tensor = 0;
};

void Check(basin_code code, basin_error** error) {
  if (code == BASIN_OK) return;
  std::fprintf(stderr, "%s: %s\n", basin_code_name(code), basin_error_message(*error));
  std::exit(1);
}

// A call that has too few workers continues when there are enough again.
bool GoesOn(basin_code code, basin_error** error) {
  if (code != BASIN_PAUSED && code != BASIN_OUTCOME_UNKNOWN) return false;
  basin_error_free(*error);
  *error = nullptr;
  return true;
}

// Named when it is made first, as a script does.
Call Named(basin_worker* worker, char letter, std::map<char, Call>& calls) {
  const auto [at, fresh] = calls.try_emplace(letter);
  if (!fresh) return at->second;
  basin_error* error = nullptr;
  const uint64_t shape = 2;
  const basin_tensor tensor = {"value", BASIN_F32, 1, &shape};
  const std::string lane = std::string("call/") + letter;
  Check(basin_register(worker, lane.c_str(), BASIN_CALL, &tensor, 1, &at->second.lane,
                       &at->second.tensor, &error),
        &error);
  return at->second;
}

std::array<float, 2> Sum(basin_worker* worker, const Call& call, std::array<float, 2> value) {
  basin_error* error = nullptr;
  basin_round_spec spec = BASIN_ROUND_SPEC_INIT;
  spec.op = BASIN_SUM;
  Check(basin_begin(worker, call.lane, &spec, &error), &error);
  Check(basin_push(worker, call.lane, call.tensor, value.data(), sizeof value, &error), &error);
  Check(basin_commit(worker, call.lane, nullptr, nullptr, &error), &error);
  basin_result* result = nullptr;
  basin_code code = BASIN_PAUSED;
  do {
    code = basin_wait(worker, call.lane, BASIN_FOREVER, &result, &error);
  } while (GoesOn(code, &error));
  Check(code, &error);
  std::array<float, 2> sum = {};
  Check(basin_result_copy(result, call.tensor, sum.data(), sizeof sum, &error), &error);
  basin_result_free(result);
  return sum;
}

uint32_t Meet(basin_worker* worker) {
  basin_error* error = nullptr;
  basin_code code = BASIN_PAUSED;
  do {
    code = basin_barrier(worker, "meet", BASIN_FOREVER, &error);
  } while (GoesOn(code, &error));
  Check(code, &error);
  basin_place place = BASIN_PLACE_INIT;
  Check(basin_get_place(worker, &place, &error), &error);
  return place.world_size;
}

}  // namespace

int main(int argc, char** argv) {
  basin_error* error = nullptr;
  basin_worker* worker = nullptr;
  const auto join = [&] {
    basin_options* options = basin_options_new(BASIN_READ_ENVIRONMENT);
    Check(basin_connect(options, &worker, &error), &error);
    basin_options_free(options);
    Check(basin_ready(worker, 0, 0, &error), &error);
    Check(basin_await_member(worker, BASIN_FOREVER, &error), &error);
  };
  std::map<char, Call> calls;
  basin::testing::RepeatCalls(
      argc > 1 ? argv[1] : "a", join,
      [&](char letter, std::array<float, 2> value) {
        return Sum(worker, Named(worker, letter, calls), value);
      },
      [&] { return Meet(worker); });
  basin_close(worker);
  std::quick_exit(0);
}

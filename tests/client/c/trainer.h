// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A worker of the C interface, with the code that every test needs.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_CLIENT_C_TRAINER_H_
#define BASIN_TESTS_CLIENT_C_TRAINER_H_

#include <basin/basin.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace basin {

// An error that frees itself; empty after a success.
class Failure {
 public:
  Failure() = default;
  ~Failure() { basin_error_free(error_); }
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  basin_error** out() {
    basin_error_free(error_);
    error_ = nullptr;
    return &error_;
  }
  basin_code code() const { return basin_error_code(error_); }
  std::string message() const { return basin_error_message(error_); }
  const basin_error* get() const { return error_; }

 private:
  basin_error* error_ = nullptr;
};

using OptionMap = std::map<std::string, std::string>;

// One lane "model" with f32 tensors "weight" (kWeights elements) and "bias" (3).
class Trainer {
 public:
  static constexpr size_t kWeights = 500'000;

  Trainer(const std::string& address, const std::string& id, int workers,
          const OptionMap& more = {}, basin_log log = nullptr, void* user = nullptr,
          uint64_t step = 0, uint64_t state_hash = 0, bool ready = true) {
    basin_options* options = basin_options_new(0);
    OptionMap set = {{"address", address},
                     {"worker_id", id},
                     {"max_workers", std::to_string(workers)},
                     {"fresh", "true"},
                     {"run_id", "run"}};
    for (const auto& [key, value] : more) set[key] = value;
    for (const auto& [key, value] : set) {
      EXPECT_EQ(basin_options_set(options, key.c_str(), value.c_str(), failure.out()), BASIN_OK)
          << failure.message();
    }
    basin_options_set_log(options, log, user);
    EXPECT_EQ(basin_connect(options, &worker, failure.out()), BASIN_OK) << failure.message();
    basin_options_free(options);
    const uint64_t weights = kWeights;
    const uint64_t biases = 3;
    const basin_tensor tensors[] = {{"weight", BASIN_F32, 1, &weights},
                                    {"bias", BASIN_F32, 1, &biases}};
    EXPECT_EQ(
        basin_register(worker, "model", BASIN_GRADIENT, tensors, 2, &lane, handles, failure.out()),
        BASIN_OK)
        << failure.message();
    if (!ready) return;
    EXPECT_EQ(basin_ready(worker, step, state_hash, failure.out()), BASIN_OK) << failure.message();
  }
  ~Trainer() { Close(); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void Close() {
    basin_close(worker);
    worker = nullptr;
  }
  basin_code AwaitMember() { return basin_await_member(worker, BASIN_SECONDS(60), failure.out()); }

  static basin_round_spec Spec(basin_op op) {
    basin_round_spec spec = BASIN_ROUND_SPEC_INIT;
    spec.op = op;
    return spec;
  }
  // Begins and pushes a gradient of this value.
  void Push(float value, basin_op op = BASIN_SUM) {
    weight.assign(kWeights, value);
    bias.assign(3, value);
    const basin_round_spec spec = Spec(op);
    EXPECT_EQ(basin_begin(worker, lane, &spec, failure.out()), BASIN_OK) << failure.message();
    EXPECT_EQ(basin_push(worker, lane, handles[0], weight.data(), weight.size() * sizeof(float),
                         failure.out()),
              BASIN_OK);
    EXPECT_EQ(basin_push(worker, lane, handles[1], bias.data(), bias.size() * sizeof(float),
                         failure.out()),
              BASIN_OK);
  }
  void Commit() {
    EXPECT_EQ(basin_commit(worker, lane, nullptr, nullptr, failure.out()), BASIN_OK)
        << failure.message();
  }
  // Waits; on success the result is in `weight`, `bias` and `info`.
  basin_code Wait(int64_t timeout = BASIN_SECONDS(60)) {
    basin_result* result = nullptr;
    const basin_code code = basin_wait(worker, lane, timeout, &result, failure.out());
    if (code == BASIN_OK) Take(result);
    basin_result_free(result);
    return code;
  }
  void Take(const basin_result* result) {
    basin_result_info(result, &info);
    EXPECT_EQ(basin_result_copy(result, handles[0], weight.data(), weight.size() * sizeof(float),
                                failure.out()),
              BASIN_OK)
        << failure.message();
    EXPECT_EQ(basin_result_copy(result, handles[1], bias.data(), bias.size() * sizeof(float),
                                failure.out()),
              BASIN_OK)
        << failure.message();
  }
  basin_code Step(float value, basin_op op = BASIN_SUM) {
    Push(value, op);
    Commit();
    return Wait();
  }
  // Whether the whole result has this value.
  bool ResultIs(float value) const {
    for (const float x : weight) {
      if (x != value) return false;
    }
    return bias == std::vector<float>(3, value);
  }
  basin_place Place() {
    basin_place place = BASIN_PLACE_INIT;
    EXPECT_EQ(basin_get_place(worker, &place, failure.out()), BASIN_OK) << failure.message();
    return place;
  }

  basin_worker* worker = nullptr;
  uint32_t lane = 0;
  uint32_t handles[2] = {};
  std::vector<float> weight;
  std::vector<float> bias;
  basin_round_info info = BASIN_ROUND_INFO_INIT;
  Failure failure;
};

}  // namespace basin

#endif  // BASIN_TESTS_CLIENT_C_TRAINER_H_

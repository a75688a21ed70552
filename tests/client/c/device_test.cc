// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Tensors on a CUDA device through the C and C++ interfaces, with a real basind: libbasin.so is
// built with emulated devices.

#include <basin/basin.h>
#include <basin/client.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/c/aggregator_process.h"
#include "tests/client/c/emulated_cuda.h"
#include "tests/client/c/trainer.h"

namespace basin {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string program;  // The path of basind, from the command line.

constexpr size_t kWeightBytes = Trainer::kWeights * sizeof(float);
constexpr size_t kBiasBytes = 3 * sizeof(float);

// A trainer whose tensors are on a device.
class CudaTrainer : public Trainer {
 public:
  CudaTrainer(const std::string& address, const std::string& id, int workers,
              const OptionMap& more = {}, int32_t on = 0)
      : Trainer(address, id, workers, more),
        device(on),
        stream(basin_emulated_stream(on)),
        on_device{static_cast<float*>(basin_emulated_allocate(on, kWeightBytes)),
                  static_cast<float*>(basin_emulated_allocate(on, kBiasBytes))} {}
  ~CudaTrainer() {
    Close();
    basin_emulated_stream_free(stream);
    for (float* const tensor : on_device) basin_emulated_free(tensor);
  }

  // The backward: writes the gradients, in the stream.
  void Compute(float value) {
    weight.assign(kWeights, value);
    bias.assign(3, value);
    basin_emulated_copy(stream, on_device[0], weight.data(), kWeightBytes);
    basin_emulated_copy(stream, on_device[1], bias.data(), kBiasBytes);
  }
  basin_code Begin() {
    const basin_round_spec spec = Spec(BASIN_SUM);
    return basin_begin(worker, lane, &spec, failure.out());
  }
  basin_code PushDevice() {
    const basin_pushed pushed[] = {{handles[0], on_device[0], kWeightBytes, BASIN_SAME_DTYPE, 0},
                                   {handles[1], on_device[1], kBiasBytes, BASIN_SAME_DTYPE, 0}};
    return basin_push_device(worker, lane, pushed, 2, device, stream, failure.out());
  }
  basin_code TryCommit() { return basin_commit(worker, lane, nullptr, nullptr, failure.out()); }
  // Waits, and puts the result into the gradients, and then into `weight` and `bias`.
  basin_code WaitDevice() {
    basin_result* result = nullptr;
    basin_code code = basin_wait(worker, lane, BASIN_SECONDS(60), &result, failure.out());
    if (code != BASIN_OK) return code;
    const basin_buffer buffers[] = {{handles[0], nullptr, on_device[0], kWeightBytes},
                                    {handles[1], nullptr, on_device[1], kBiasBytes}};
    code = basin_result_copy_device(worker, result, buffers, 2, device, stream, failure.out());
    basin_result_free(result);
    weight.assign(kWeights, -1);
    bias.assign(3, -1);
    basin_emulated_copy(stream, weight.data(), on_device[0], kWeightBytes);
    basin_emulated_copy(stream, bias.data(), on_device[1], kBiasBytes);
    basin_emulated_synchronize(stream);
    return code;
  }

  const int32_t device;
  void* const stream;
  float* const on_device[2];
};

class DeviceAbi : public testing::Test {
 protected:
  void TearDown() override {
    for (const int32_t device : {0, 1}) basin_emulated_fail_from(device, -1);
  }

  const AggregatorProcess aggregator_{program};
};

// One worker has its tensors on a device, the other on the host; with shared memory and without.
TEST_F(DeviceAbi, WorkersWithAndWithoutADeviceGetTheSameResult) {
  for (const char* const local : {"true", "false"}) {
    const OptionMap options = {{"local", local}};
    CudaTrainer cuda(aggregator_.address(), "w0", 2, options);
    Trainer host(aggregator_.address(), "w1", 2, options);
    ASSERT_EQ(cuda.AwaitMember(), BASIN_OK) << cuda.failure.message();
    ASSERT_EQ(host.AwaitMember(), BASIN_OK) << host.failure.message();
    for (int round = 1; round <= 5; ++round) {
      basin_emulated_hold(cuda.stream, 1);
      ASSERT_EQ(cuda.Begin(), BASIN_OK) << cuda.failure.message();
      cuda.Compute(static_cast<float>(round));
      ASSERT_EQ(cuda.PushDevice(), BASIN_OK) << cuda.failure.message();
      host.Push(10);
      host.Commit();
      basin_emulated_hold(cuda.stream, 0);
      ASSERT_EQ(cuda.TryCommit(), BASIN_OK) << cuda.failure.message();
      ASSERT_EQ(host.Wait(), BASIN_OK) << host.failure.message();
      ASSERT_EQ(cuda.WaitDevice(), BASIN_OK) << cuda.failure.message();
      EXPECT_TRUE(host.ResultIs(static_cast<float>(round + 10))) << round;
      EXPECT_TRUE(cuda.ResultIs(static_cast<float>(round + 10))) << round;
    }
    EXPECT_EQ(basin_leave(cuda.worker, cuda.failure.out()), BASIN_OK);
    EXPECT_EQ(basin_leave(host.worker, host.failure.out()), BASIN_OK);
  }
}

TEST_F(DeviceAbi, WorksWithoutPinnedMemory) {
  CudaTrainer t(aggregator_.address(), "w0", 1, {{"pinned_bytes", "0"}});
  ASSERT_EQ(t.AwaitMember(), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.Begin(), BASIN_OK);
  t.Compute(3);
  ASSERT_EQ(t.PushDevice(), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.TryCommit(), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.WaitDevice(), BASIN_OK) << t.failure.message();
  EXPECT_TRUE(t.ResultIs(3));
}

TEST_F(DeviceAbi, RefusalsPushNothing) {
  CudaTrainer t(aggregator_.address(), "w0", 1);
  ASSERT_EQ(t.AwaitMember(), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.Begin(), BASIN_OK);
  t.Compute(2);
  basin_emulated_capture(t.stream, 1);
  EXPECT_EQ(t.PushDevice(), BASIN_FAILED_PRECONDITION);
  EXPECT_THAT(t.failure.message(), HasSubstr("captured into a graph"));
  basin_emulated_capture(t.stream, 0);
  const basin_pushed weight = {t.handles[0], t.on_device[0], kWeightBytes, BASIN_SAME_DTYPE, 0};
  EXPECT_EQ(basin_push_device(t.worker, t.lane, &weight, 1, 1, t.stream, t.failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(t.failure.message(), AllOf(HasSubstr("tensor weight"), HasSubstr("index")));
  EXPECT_EQ(basin_push_device(t.worker, t.lane, &weight, 1, 7, t.stream, t.failure.out()),
            BASIN_FAILED_PRECONDITION);
  EXPECT_THAT(t.failure.message(), AllOf(HasSubstr("CUDA device 7"), HasSubstr("on the CPU")));
  EXPECT_EQ(basin_push_device(t.worker, t.lane, nullptr, 1, 0, t.stream, t.failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_push_device(nullptr, t.lane, &weight, 1, 0, t.stream, t.failure.out()),
            BASIN_INVALID_ARGUMENT);
  ASSERT_EQ(t.PushDevice(), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.TryCommit(), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.WaitDevice(), BASIN_OK) << t.failure.message();
  EXPECT_TRUE(t.ResultIs(2));
}

TEST_F(DeviceAbi, Fault_A13_ACopyThatFailsIsReportedByTheCommitAndTheRoundCanBeWithdrawn) {
  CudaTrainer cuda(aggregator_.address(), "w0", 2);
  Trainer host(aggregator_.address(), "w1", 2);
  ASSERT_EQ(cuda.AwaitMember(), BASIN_OK) << cuda.failure.message();
  ASSERT_EQ(host.AwaitMember(), BASIN_OK) << host.failure.message();
  ASSERT_EQ(cuda.Begin(), BASIN_OK);
  cuda.Compute(1);
  ASSERT_EQ(cuda.PushDevice(), BASIN_OK) << cuda.failure.message();
  ASSERT_EQ(cuda.TryCommit(), BASIN_OK);
  host.Push(5);
  host.Commit();
  ASSERT_EQ(host.Wait(), BASIN_OK) << host.failure.message();
  ASSERT_EQ(cuda.WaitDevice(), BASIN_OK) << cuda.failure.message();

  // The next push looks at two tensors, makes an event, records it, and orders a queue after it.
  ASSERT_EQ(cuda.Begin(), BASIN_OK);
  basin_emulated_fail_from(0, basin_emulated_calls(0) + 5);
  ASSERT_EQ(cuda.PushDevice(), BASIN_OK) << cuda.failure.message();
  EXPECT_EQ(cuda.TryCommit(), BASIN_FAILED_PRECONDITION);
  const std::string why = cuda.failure.message();
  EXPECT_THAT(why, AllOf(HasSubstr("tensor weight and 1 more"), HasSubstr("emulated device"),
                         HasSubstr("Withdraw the round")));
  EXPECT_EQ(
      basin_withdraw(cuda.worker, cuda.lane, why.c_str(), nullptr, nullptr, cuda.failure.out()),
      BASIN_OK)
      << cuda.failure.message();
  host.Push(5);
  host.Commit();
  ASSERT_EQ(host.Wait(), BASIN_OK) << host.failure.message();
  EXPECT_TRUE(host.ResultIs(5));
  // The worker gets the result, but not on a device that fails.
  EXPECT_EQ(cuda.WaitDevice(), BASIN_FAILED_PRECONDITION);
}

TEST_F(DeviceAbi, AWithdrawnRoundLeavesNothingForTheNext) {
  CudaTrainer t(aggregator_.address(), "w0", 1);
  ASSERT_EQ(t.AwaitMember(), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.Begin(), BASIN_OK);
  t.Compute(1);
  ASSERT_EQ(t.PushDevice(), BASIN_OK);
  ASSERT_EQ(basin_withdraw(t.worker, t.lane, "a test", nullptr, nullptr, t.failure.out()), BASIN_OK)
      << t.failure.message();
  basin_result* result = nullptr;
  const basin_code ended =
      basin_wait(t.worker, t.lane, BASIN_SECONDS(60), &result, t.failure.out());
  EXPECT_TRUE(ended == BASIN_OK || ended == BASIN_ROUND_ABORTED) << t.failure.message();
  basin_result_free(result);
  ASSERT_EQ(t.Begin(), BASIN_OK) << t.failure.message();
  t.Compute(4);
  ASSERT_EQ(t.PushDevice(), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.TryCommit(), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.WaitDevice(), BASIN_OK) << t.failure.message();
  EXPECT_TRUE(t.ResultIs(4));
}

TEST_F(DeviceAbi, AbandonAndCloseReturnWhenTheDeviceReadsNothing) {
  CudaTrainer t(aggregator_.address(), "w0", 1);
  ASSERT_EQ(t.AwaitMember(), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.Begin(), BASIN_OK);
  basin_emulated_hold(t.stream, 1);
  t.Compute(1);
  ASSERT_EQ(t.PushDevice(), BASIN_OK);
  auto abandoned =
      std::async(std::launch::async, [&] { return basin_abandon(t.worker, t.failure.out()); });
  basin_emulated_hold(t.stream, 0);
  EXPECT_EQ(abandoned.get(), BASIN_OK) << t.failure.message();
  t.Close();
}

TEST_F(DeviceAbi, TheCppInterfaceHasThem) {
  Options options(Options::Environment::kIgnore);
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>{"address", aggregator_.address()},
        {"worker_id", "w0"},
        {"max_workers", "1"},
        {"fresh", "true"}}) {
    ASSERT_TRUE(options.Set(key, value).ok());
  }
  Result<Worker> worker = Worker::Connect(options);
  ASSERT_TRUE(worker.ok());
  Result<Lane> lane = worker->Register("model", {{"weight", DType::kF32, {3}}});
  ASSERT_TRUE(lane.ok());
  ASSERT_TRUE(worker->Ready().ok());
  ASSERT_TRUE(worker->AwaitMember(std::chrono::minutes(1)).ok());
  void* const stream = basin_emulated_stream(1);
  auto* const tensor = static_cast<float*>(basin_emulated_allocate(1, kBiasBytes));
  const float gradient[] = {1, 2, 3};
  basin_emulated_copy(stream, tensor, gradient, kBiasBytes);
  ASSERT_TRUE(lane->Begin(RoundSpec(Op::kSum)).ok());
  const std::vector<Lane::Buffer> buffers = {{0, tensor, tensor, kBiasBytes}};
  Status status = lane->PushDevice(buffers, {1, stream});
  ASSERT_TRUE(status.ok()) << status.message();
  status = lane->Commit();
  ASSERT_TRUE(status.ok()) << status.message();
  Result<RoundResult> result = lane->Wait(std::chrono::minutes(1));
  ASSERT_TRUE(result.ok()) << result.status().message();
  std::memset(tensor, 0, kBiasBytes);
  status = lane->CopyDevice(*result, buffers, {1, stream});
  ASSERT_TRUE(status.ok()) << status.message();
  basin_emulated_synchronize(stream);
  EXPECT_TRUE(std::equal(std::begin(gradient), std::end(gradient), tensor));
  basin_emulated_stream_free(stream);
  basin_emulated_free(tensor);
}

// The ranks of a node in several processes: tests/python/test_torch_group.py.
TEST_F(DeviceAbi, Item3_AWorkerWithoutTheOptionOrWithoutALauncherHasNoGroup) {
  for (const char* const wish : {"off", "auto"}) {
    CudaTrainer alone(aggregator_.address(), "w0", 1, {{"job", wish}, {"local_group", wish}});
    basin_group* group = reinterpret_cast<basin_group*>(&alone);
    EXPECT_EQ(basin_group_open(alone.worker, 0, "model", "", &group, alone.failure.out()), BASIN_OK)
        << alone.failure.message();
    EXPECT_EQ(group, nullptr);
  }
}

TEST_F(DeviceAbi, BadInput_AGroupThatCannotBeIsRefused) {
  Failure failure;
  basin_options* const options = basin_options_new(0);
  EXPECT_EQ(basin_options_set(options, "local_group", "on", failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("off, auto, deterministic or fast is needed"));
  EXPECT_EQ(basin_options_set(options, "local_group", "fast", failure.out()), BASIN_OK);
  basin_worker* worker = nullptr;
  EXPECT_EQ(basin_connect(options, &worker, failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("LOCAL_RANK and LOCAL_WORLD_SIZE are not both set"));
  basin_options_free(options);

  basin_turn turn = BASIN_TURN_INIT;
  EXPECT_EQ(basin_group_turn(nullptr, 0, &turn, failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("The group is null"));
  EXPECT_EQ(basin_group_fail(nullptr, "no memory", failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("The group is null"));
  basin_group_close(nullptr);
}

}  // namespace
}  // namespace basin

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "usage: device_test PATH_OF_BASIND\n");
    return 2;
  }
  basin::program = argv[1];
  return RUN_ALL_TESTS();
}

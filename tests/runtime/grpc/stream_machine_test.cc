// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The machine without a call: what it starts, and when.

#include "runtime/grpc/stream_machine.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/grpc/byte_buffer.h"

namespace basin {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Machine : public StreamMachine {
 public:
  using StreamMachine::Activate;
  using StreamMachine::Cancel;
  using StreamMachine::Operation;
  using StreamMachine::ReadDone;
  using StreamMachine::Release;
  using StreamMachine::WriteDone;
  explicit Machine(const StreamOptions& options) : StreamMachine(options) {}

  void Send(const std::string& text) { Write(BufferOf(text)); }
  void Receive(const std::string& text) {
    incoming() = BufferOf(text);
    ReadDone(true);
  }
  // What was started since the last call. A write is its message.
  std::vector<std::string> Started() { return std::exchange(started_, {}); }
  const std::vector<std::string>& received() const { return received_; }
  bool may_send = true;
  absl::Status answer;
  std::vector<absl::Status> after;
  std::function<void()> on_after;
  uint64_t slow_reader = 0;

 private:
  void StartOperation(Operation operation) override {
    switch (operation) {
      case Operation::kRead:
        return started_.push_back("read");
      case Operation::kWrite:
        return started_.push_back(StringOf(outgoing()));
      case Operation::kCancel:
        return started_.push_back("cancel");
      default:
        return started_.push_back("end");
    }
  }
  Operation NextOfSide() override { return Operation::kNone; }
  bool MaySend() const override { return may_send; }
  absl::Status OnMessage(const grpc::ByteBuffer& message) override {
    received_.push_back(StringOf(message));
    Hold(message.Length());
    return answer;
  }
  void AfterMessage(const absl::Status& taken) override {
    after.push_back(taken);
    if (on_after) on_after();
  }
  void OnSlowReader(uint64_t waiting_bytes) override { slow_reader = waiting_bytes; }

  std::vector<std::string> started_;
  std::vector<std::string> received_;
};

class StreamMachineTest : public testing::Test {
 protected:
  std::shared_ptr<Machine> Make() {
    StreamOptions options;
    options.window = {10, 2};
    options.most_waiting_bytes = 1000;
    options.outbox = &outbox_;
    options.inbox = &inbox_;
    return std::make_shared<Machine>(options);
  }
  std::atomic<uint64_t> outbox_{0};
  std::atomic<uint64_t> inbox_{0};
};

TEST_F(StreamMachineTest, OneReadAndOneWriteAreInFlightAndMessagesKeepTheirOrder) {
  const auto machine = Make();
  machine->Send("a");
  EXPECT_THAT(machine->Started(), IsEmpty()) << "nothing before it is active";
  machine->Activate();
  EXPECT_THAT(machine->Started(), ElementsAre("a", "read"));
  machine->Send("b");
  machine->Send("c");
  EXPECT_THAT(machine->Started(), IsEmpty());
  machine->WriteDone(true);
  EXPECT_THAT(machine->Started(), ElementsAre("b"));
  machine->WriteDone(true);
  EXPECT_THAT(machine->Started(), ElementsAre("c"));
  EXPECT_GT(outbox_, 0u);
  machine->WriteDone(true);
  EXPECT_EQ(outbox_, 0u);
  EXPECT_EQ(machine->queued_bytes(), 0u);
  machine->Release();
}

TEST_F(StreamMachineTest, ReadsOnlyWhileTheWindowHasRoom) {
  const auto machine = Make();
  machine->Activate();
  machine->Receive("0123456789");  // All bytes.
  EXPECT_THAT(machine->Started(), ElementsAre("read"));
  EXPECT_EQ(inbox_, 10u);
  machine->Consumed(10);
  EXPECT_THAT(machine->Started(), ElementsAre("read"));
  machine->Receive("a");
  machine->Receive("b");  // All messages.
  EXPECT_THAT(machine->Started(), ElementsAre("read"));
  machine->Consumed(1);
  EXPECT_THAT(machine->Started(), ElementsAre("read"));
  EXPECT_THAT(machine->received(), ElementsAre("0123456789", "a", "b"));
  EXPECT_EQ(machine->after.size(), 3u);
  machine->Release();
}

// Another thread may make room meanwhile. A side that ends the stream must get no further message.
TEST_F(StreamMachineTest, ReadsOnlyOnceTheSideHasDealtWithAnError) {
  const auto machine = Make();
  machine->Activate();
  machine->Started();
  machine->answer = absl::InvalidArgumentError("no");
  machine->on_after = [&] {
    machine->Consumed(1);
    EXPECT_THAT(machine->Started(), IsEmpty());
    machine->Cancel();
  };
  machine->Receive("a");
  EXPECT_THAT(machine->after, ElementsAre(machine->answer));
  EXPECT_THAT(machine->Started(), ElementsAre("cancel"));
  machine->Release();
}

TEST_F(StreamMachineTest, ASideDecidesWhenAMessageMayBeSent) {
  const auto machine = Make();
  machine->may_send = false;
  machine->Activate();
  machine->Send("a");
  EXPECT_THAT(machine->Started(), ElementsAre("read"));
  machine->may_send = true;
  machine->Send("b");
  EXPECT_THAT(machine->Started(), ElementsAre("a"));
  machine->Release();
}

TEST_F(StreamMachineTest, AMessageBeyondTheLimitIsReportedAndNotQueued) {
  const auto machine = Make();
  machine->Send(std::string(500, 'a'));
  const uint64_t before = machine->queued_bytes();
  machine->Send(std::string(500, 'b'));
  EXPECT_GT(machine->slow_reader, 1000u);
  EXPECT_EQ(machine->queued_bytes(), before);
  EXPECT_EQ(outbox_, before);
}

TEST_F(StreamMachineTest, AWriteThatFailsDropsWhatWaits) {
  const auto machine = Make();
  machine->Activate();
  machine->Send("a");
  machine->Send("b");
  machine->WriteDone(false);
  machine->Send("c");
  EXPECT_THAT(machine->Started(), ElementsAre("read", "a"));
  EXPECT_EQ(outbox_, 0u);
  machine->Release();
}

TEST_F(StreamMachineTest, ACancelledStreamTakesNothingFromEitherEnd) {
  const auto machine = Make();
  machine->Activate();
  machine->Send("a");
  machine->Send("b");
  machine->Started();
  machine->Cancel();
  machine->Cancel();
  EXPECT_THAT(machine->Started(), ElementsAre("cancel"));
  machine->Receive("late");
  machine->WriteDone(false);
  machine->Send("c");
  EXPECT_THAT(machine->received(), IsEmpty());
  EXPECT_THAT(machine->after, IsEmpty());
  EXPECT_THAT(machine->Started(), IsEmpty());
  machine->Release();
}

TEST_F(StreamMachineTest, LivesUntilItIsReleasedAndGivesBackWhatItHolds) {
  auto machine = Make();
  machine->Activate();
  machine->Receive("abc");
  machine->Send("a");
  const std::weak_ptr<Machine> weak = machine;
  Machine* const raw = machine.get();
  machine.reset();
  ASSERT_FALSE(weak.expired());
  raw->Release();
  EXPECT_TRUE(weak.expired());
  EXPECT_EQ(inbox_, 0u);
  EXPECT_EQ(outbox_, 0u);
}

}  // namespace
}  // namespace basin

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A small message must not become a large one in memory: lists are counted, and the memory of
// messages is charged, before protobuf reads them. The tests measure the actual memory.

#include "proto/wire/expansion.h"

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "basin/v1/session.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/session.h"
#include "proto/wire/session_stream.h"
#include "protocol/limits/limits.h"
#include "tests/proto/quiet_protobuf.h"
#include "tests/proto/random_messages.h"

namespace {

// The memory of this test, which has one thread.
size_t allocated = 0;
size_t most_allocated = 0;

}  // namespace

void* operator new(size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  allocated += malloc_usable_size(memory);
  most_allocated = std::max(most_allocated, allocated);
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) allocated -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace basin::wire {
namespace {

using ::basin::testing::RandomMessages;
using ::testing::HasSubstr;

constexpr size_t kMebibyte = size_t{1} << 20;

template <typename Message>
using Taken = absl::StatusOr<typename MessageReader<Message>::Received>;

// The most memory that reading it needs, in addition to the memory before.
template <typename Message>
size_t PeakOf(const std::string& bytes, Taken<Message>* taken) {
  MessageReader<Message> reader;
  const size_t before = allocated;
  most_allocated = allocated;
  *taken = reader.Read(bytes);
  return most_allocated - before;
}

std::string Field(uint32_t number, std::string_view content) {
  std::string out;
  const auto varint = [&](uint64_t value) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
  };
  varint(number << 3 | 2);
  varint(content.size());
  return out.append(content);
}

std::string Repeated(const std::string& part, size_t bytes) {
  std::string out;
  out.reserve(bytes);
  while (out.size() + part.size() <= bytes) out += part;
  return out;
}

std::string ValidHello() {
  v1::ToAggregator proto;
  EXPECT_TRUE(Encode(ToAggregator(RandomMessages(3).Make<Hello>()), &proto).ok());
  proto.mutable_hello()->clear_lanes();
  return proto.hello().SerializeAsString();
}

constexpr uint32_t kHello = 1;
constexpr size_t kMost = kMaxMessageBytes - 4096;

// Each is a message of the most bytes, and of the parts that become the most.
std::vector<std::pair<std::string, std::string>> Bombs() {
  const std::string hello = ValidHello();
  const std::string lane = "\x0a\x01l\x10\x02";
  return {
      {"hello.lanes has more than 4096 entries",
       Field(kHello, hello + Repeated(Field(13, ""), kMost))},
      {"hello.lanes[0].layout has more than 65536 entries",
       Field(kHello, hello + Field(13, lane + Repeated(Field(4, ""), kMost)))},
      {"hello.lanes[0].held has more than 65536 entries",
       Field(kHello, hello + Field(13, lane + Repeated(Field(11, ""), kMost)))},
      {"hello.lanes[0].verdicts has more than 2 entries",
       Field(kHello, hello + Field(13, lane + Repeated(Field(5, ""), kMost)))},
      {"members has more than 10000 entries",
       Field(kHello, Field(12, Repeated(Field(2, ""), kMost)))},
      {"contributors has more than 10000 entries",
       Field(kHello, Field(13, Field(5, Field(4, Repeated(Field(4, ""), kMost)))))},
      {"register.tensors has more than 65536 entries", Field(4, Repeated(Field(3, ""), kMost))},
      {"register.tensors[0].shape has more than 16 entries",
       Field(4, Field(3, Field(3, std::string(kMost, 1))))},
      {"skip.tensors has more than 65536 entries", Field(7, Field(3, std::string(kMost, 0)))},
      {"skip.tensors has more than 65536 entries", Field(7, Repeated("\x18\x01", kMost))},
      {"begin.samples has more than 4096 entries", Field(6, Repeated(Field(6, ""), kMost))},
      {"result_ack.ranges has more than 65536 entries", Field(11, Repeated(Field(4, ""), kMost))},
      // Fields that protobuf would merge into one.
      {"hello appears twice", Repeated(Field(kHello, Repeated(Field(13, ""), 1024)), kMost)},
      {"hello.membership appears twice",
       Field(kHello, Repeated(Field(12, Repeated(Field(2, ""), 4096)), kMost))},
  };
}

TEST(Expansion, Fault_S6_ListsAreCountedBeforeTheyAreRead) {
  for (const auto& [text, bytes] : Bombs()) {
    Taken<ToAggregator> taken = absl::UnknownError("");
    EXPECT_LE(PeakOf<ToAggregator>(bytes, &taken), kMebibyte) << text;
    ASSERT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(taken.status().message()), HasSubstr(text));
  }
}

// Fields of a newer peer have only a common bound.
TEST(Expansion, Fault_S6_FieldsThatNobodyKnowsAreBounded) {
  for (const std::string& part :
       {std::string("\xf8\x01\x01"), Field(31, ""), std::string("\xa0\x06\x01")}) {
    Taken<ToAggregator> taken = absl::UnknownError("");
    const std::string bytes = Repeated(part, kMost);
    const size_t peak = PeakOf<ToAggregator>(bytes, &taken);
    EXPECT_LE(peak, kMaxExpandedBytes);
    const absl::StatusOr<uint64_t> expanded = ExpandedBytes(bytes, *v1::ToAggregator::descriptor());
    ASSERT_TRUE(expanded.ok()) << expanded.status();
    EXPECT_GE(*expanded, peak);
  }
  // In pieces there could be more of them.
  const std::string many = Repeated(Field(31, ""), 16 * kMebibyte);
  EXPECT_THAT(std::string(DecodeToAggregator(many).status().message()),
              HasSubstr("would take more than 536870912 bytes of memory"));
}

// Except for scratch memory of a fixed size.
TEST(Expansion, WhatIsChargedIsEnough) {
  const basin::testing::QuietProtobuf quiet;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomMessages random(seed);
    const ToAggregator message =
        random.MakeAlternative<ToAggregator>(seed % std::variant_size_v<ToAggregator>);
    const std::string bytes = *Encode(message);
    if (bytes.size() > kMaxMessageBytes) continue;
    Taken<ToAggregator> taken = absl::UnknownError("");
    const size_t peak = PeakOf<ToAggregator>(bytes, &taken);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_GE(taken->messages[0].expanded + 16384, peak) << "seed " << seed;
  }
}

// Lists that are as long as they may be, of the smallest parts.
TEST(Expansion, WhatIsChargedIsEnoughForLongLists) {
  Need need{0, 1, {1, 1}, {}};
  need.ranges.assign(kMaxRanges, ChunkRange{0, 0, 1});
  Register tensors{"lane", LaneKind::kGradient, {}};
  for (uint32_t i = 0; i < kMaxTensors; ++i) {
    tensors.tensors.push_back({absl::StrCat(i), DType::kF32, {}});
  }
  Hello hello = RandomMessages(3).Make<Hello>();
  hello.lanes.clear();
  for (uint32_t i = 0; i < kMaxLanes / 4; ++i) {
    LaneHistory lane;
    lane.name = absl::StrCat("lane ", i);
    lane.lane = i;
    lane.verdicts.assign(kMaxRememberedVerdicts, RandomMessages(4).Make<VerdictRecord>());
    hello.lanes.push_back(std::move(lane));
  }
  for (const ToAggregator& message :
       {ToAggregator(need), ToAggregator(tensors), ToAggregator(hello)}) {
    const std::string bytes = *Encode(message);
    ASSERT_LE(bytes.size(), kMaxMessageBytes);
    Taken<ToAggregator> taken = absl::UnknownError("");
    const size_t peak = PeakOf<ToAggregator>(bytes, &taken);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_GE(taken->messages[0].expanded, peak) << "of kind " << message.index();
    EXPECT_LE(taken->messages[0].expanded, 8 * peak)
        << "but not by far, of kind " << message.index();
  }
}

TEST(Expansion, Fault_S6_WhatAllBecomeIsBounded) {
  Need need{0, 1, {1, 1}, {}};
  need.ranges.assign(20000, ChunkRange{0, 0, 1});
  const std::string bytes = *Encode(ToAggregator(need));
  const uint64_t one = *ExpandedBytes(bytes, *v1::ToAggregator::descriptor());
  ReaderBudgets budgets{ByteBudget(kMaxAssembledBytes), ByteBudget(2 * one)};
  MessageReader<ToAggregator> first(&budgets);
  MessageReader<ToAggregator> second(&budgets);
  auto a = first.Read(bytes);
  auto b = second.Read(bytes);
  ASSERT_TRUE(a.ok() && b.ok());
  const auto refused = first.Read(bytes);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("Too many large messages arrive at once"));
  // Small messages are still read: a round continues.
  EXPECT_TRUE(first.Read(*Encode(ToAggregator(Heartbeat{1, {}}))).ok());
  a = absl::UnknownError("dealt with");
  EXPECT_TRUE(first.Read(bytes).ok());
  b = absl::UnknownError("dealt with");
  EXPECT_TRUE(budgets.expanding.Take(2 * one)) << "not all of the budget came back";
}

void FindLists(const google::protobuf::Descriptor& type,
               std::set<const google::protobuf::Descriptor*>& seen, size_t* lists) {
  if (!seen.insert(&type).second) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) {
      ++*lists;
      EXPECT_GT(MostEntries(field), 0u) << field.full_name() << " has no bound";
    }
    if (field.message_type() != nullptr) FindLists(*field.message_type(), seen, lists);
  }
}

TEST(Expansion, EveryListHasABound) {
  std::set<const google::protobuf::Descriptor*> seen;
  size_t lists = 0;
  FindLists(*v1::ToAggregator::descriptor(), seen, &lists);
  FindLists(*v1::ToWorker::descriptor(), seen, &lists);
  EXPECT_GE(lists, 30u);
}

}  // namespace
}  // namespace basin::wire

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages that are too large for one gRPC message: divided and assembled, bounded meanwhile, and
// never larger than a job can make them.

#include "proto/wire/session_stream.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/core/plausibility.h"
#include "basin/v1/session.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/session.h"
#include "tests/proto/quiet_protobuf.h"
#include "tests/proto/random_messages.h"

namespace basin::wire {
namespace {

using ::basin::testing::RandomMessages;
using ::testing::HasSubstr;

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

// The differences between the two directions, so that each test is written once.
struct ToAggregatorSide {
  using Message = ToAggregator;
  using Proto = v1::ToAggregator;
};
struct ToWorkerSide {
  using Message = ToWorker;
  using Proto = v1::ToWorker;
};

template <typename Side>
class SessionStream : public ::testing::Test {
 protected:
  using Message = typename Side::Message;
  using Reader = MessageReader<Message>;

  static std::string Piece(std::string_view bytes, bool last) {
    typename Side::Proto carrier;
    carrier.mutable_piece()->set_bytes(bytes.data(), bytes.size());
    carrier.mutable_piece()->set_last(last);
    return carrier.SerializeAsString();
  }

  static void ExpectRefused(Reader& reader, const std::string& bytes, absl::StatusCode code,
                            const std::string& text) {
    const auto taken = reader.Read(bytes);
    ASSERT_EQ(taken.status().code(), code) << taken.status();
    EXPECT_THAT(std::string(taken.status().message()), HasSubstr(text));
    EXPECT_EQ(reader.held(), 0u);
  }

  const basin::testing::QuietProtobuf quiet_;
};

using Sides = ::testing::Types<ToAggregatorSide, ToWorkerSide>;
TYPED_TEST_SUITE(SessionStream, Sides);

TYPED_TEST(SessionStream, SmallMessagesTravelAsTheyAre) {
  using Message = typename TypeParam::Message;
  MessageReader<Message> reader;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RandomMessages random(seed);
    for (size_t i = 0; i < std::variant_size_v<Message>; ++i) {
      const Message message = random.MakeAlternative<Message>(i);
      const absl::StatusOr<std::vector<std::string>> pieces = EncodePieces(message);
      ASSERT_TRUE(pieces.ok()) << pieces.status();
      ASSERT_EQ(pieces->size(), 1u);
      ASSERT_EQ((*pieces)[0], *Encode(message));
      const auto taken = reader.Read((*pieces)[0]);
      ASSERT_TRUE(taken.ok()) << taken.status();
      ASSERT_EQ(taken->messages.size(), 1u);
      EXPECT_TRUE(taken->messages[0].message == message);
      EXPECT_EQ(taken->messages[0].bytes, (*pieces)[0].size());
    }
  }
}

// Another implementation may divide messages anywhere.
TYPED_TEST(SessionStream, PiecesOfAnySizesMakeTheMessage) {
  using Message = typename TypeParam::Message;
  ReaderBudgets budgets{ByteBudget(kMaxAssembledBytes)};
  MessageReader<Message> reader(&budgets);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    RandomMessages random(seed);
    const Message message =
        random.MakeAlternative<Message>(random.Below(std::variant_size_v<Message>));
    const std::string whole = *Encode(message);
    if (whole.empty()) continue;
    size_t begin = 0;
    uint64_t arrived = 0;
    while (begin < whole.size()) {
      const size_t size = 1 + random.Below(whole.size() - begin);
      const std::string piece =
          this->Piece(whole.substr(begin, size), begin + size == whole.size());
      begin += size;
      arrived += piece.size();
      const auto taken = reader.Read(piece);
      ASSERT_TRUE(taken.ok()) << taken.status();
      ASSERT_EQ(taken->messages.size(), begin == whole.size() ? 1u : 0u);
      if (taken->messages.empty()) {
        ASSERT_EQ(reader.held(), begin);
        continue;
      }
      EXPECT_TRUE(taken->messages[0].message == message) << "seed " << seed;
      EXPECT_EQ(taken->messages[0].bytes, arrived);
      EXPECT_EQ(reader.held(), 0u);
    }
  }
  EXPECT_TRUE(budgets.assembling.Take(kMaxAssembledBytes)) << "not all of the budget came back";
}

// An outbox with a random mix: what arrives is what was put in, messages and frames in order.
TYPED_TEST(SessionStream, AnOutboxSendsEverythingInOrder) {
  using Message = typename TypeParam::Message;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    RandomMessages random(seed);
    Outbox<Message> outbox;
    MessageReader<Message> reader;
    reader.AllowBatches();
    const bool batches = random.Below(4) != 0;
    if (batches) outbox.UseBatches();
    std::vector<Message> sent;
    std::vector<std::string> frames;
    size_t waiting = 0;  // Messages that may wait, since another one was added.
    for (uint64_t count = random.Below(200); count > 0; --count) {
      if (batches && random.Below(3) == 0) {
        frames.push_back(absl::StrCat(random.Below(kMaxStreams), "/",
                                      std::string(random.Below(kMaxBatchedFrameBytes - 8), 'f')));
        outbox.Add({static_cast<uint32_t>(frames.size() % kMaxStreams), frames.back()});
        waiting = 0;
        continue;
      }
      sent.push_back(random.MakeAlternative<Message>(random.Below(std::variant_size_v<Message>)));
      const bool can_wait = random.Below(2) == 0;
      outbox.Add(*EncodePieces(sent.back()), can_wait);
      waiting = can_wait ? waiting + 1 : 0;
    }
    if (sent.size() + frames.size() > waiting) {
      EXPECT_TRUE(outbox.due()) << "seed " << seed;
    } else if (sent.size() < kMaxBatchMessages / 2) {
      EXPECT_FALSE(outbox.due()) << "seed " << seed;
    }
    const std::vector<std::string> out = outbox.Take();
    EXPECT_FALSE(outbox.due());
    EXPECT_TRUE(outbox.Take().empty());
    if (batches) {
      EXPECT_LE(out.size(), 2 + (sent.size() + frames.size()) / 16) << "seed " << seed;
    }
    size_t message = 0;
    size_t frame = 0;
    for (const std::string& bytes : out) {
      ASSERT_LE(bytes.size(), kMaxMessageBytes);
      const auto taken = reader.Read(bytes);
      ASSERT_TRUE(taken.ok()) << taken.status();
      for (const auto& one : taken->messages) {
        ASSERT_LT(message, sent.size());
        EXPECT_TRUE(one.message == sent[message++]) << "seed " << seed;
      }
      for (const BatchedFrame& one : taken->frames) {
        ASSERT_LT(frame, frames.size());
        EXPECT_EQ(one.frame, frames[frame++]);
        EXPECT_EQ(one.stream, frame % kMaxStreams);
      }
    }
    EXPECT_EQ(message, sent.size());
    EXPECT_EQ(frame, frames.size());
  }
}

// TCP's checksum misses some changes of a bit, and without its own a message with another count or
// weight is as good as the one that was sent.
TYPED_TEST(SessionStream, Fault_N8_EveryFlippedBitOfASealedMessageIsSeen) {
  using Message = typename TypeParam::Message;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomMessages random(seed);
    const std::string sealed =
        Sealed(*Encode(random.MakeAlternative<Message>(seed % std::variant_size_v<Message>)));
    const size_t bits = 8 * sealed.size();
    for (size_t bit = 0; bit < bits; bit += bits < 4096 ? 1 : 1 + random.Below(64)) {
      std::string changed = sealed;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      MessageReader<Message> reader;
      ASSERT_TRUE(reader.RequireSeals().ok());
      this->ExpectRefused(reader, changed, absl::StatusCode::kDataLoss, "changed on its way");
    }
    MessageReader<Message> reader;
    ASSERT_TRUE(reader.RequireSeals().ok());
    EXPECT_TRUE(reader.Read(sealed).ok());
  }
}

// The first message comes before its reader knows whether the peer seals messages.
TYPED_TEST(SessionStream, Fault_N8_AFlippedBitOfTheFirstMessageIsSeen) {
  using Message = typename TypeParam::Message;
  const Message first = RandomMessages(3).MakeAlternative<Message>(0);
  const std::string sealed = Sealed(*Encode(first));
  for (size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    MessageReader<Message> reader;
    const auto taken = reader.Read(changed);
    // If it can be read, as a message of a peer without seals, it says that it has one.
    if (taken.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(reader.RequireSeals())) << "bit " << bit;
    }
  }
  MessageReader<Message> reader;
  const auto taken = reader.Read(sealed);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_TRUE(taken->messages[0].message == first);
  EXPECT_TRUE(reader.RequireSeals().ok());
}

// An earlier peer sends none; its bytes may look like one.
TYPED_TEST(SessionStream, AMessageWithoutASealIsTakenUntilSealsAreRequired) {
  using Message = typename TypeParam::Message;
  const std::string sealed = Sealed("");
  MessageReader<Message> reader;
  EXPECT_TRUE(
      reader.Read(this->Piece("x" + sealed.substr(0, sealed.size() - 1) + "y", false)).ok());
  EXPECT_TRUE(absl::IsDataLoss(reader.RequireSeals()));
  this->ExpectRefused(reader, *Encode(RandomMessages(3).MakeAlternative<Message>(0)),
                      absl::StatusCode::kDataLoss, "its checksum is not there");
}

// A peer could cause them without end.
TYPED_TEST(SessionStream, Fault_N11_WhatCanWaitIsBounded) {
  using Message = typename TypeParam::Message;
  const auto pieces = EncodePieces(RandomMessages(1).MakeAlternative<Message>(0));
  for (const bool batches : {true, false}) {
    Outbox<Message> outbox;
    if (batches) outbox.UseBatches();
    size_t waiting = 0;
    for (; !outbox.due() && waiting < 1000; ++waiting) outbox.Add(*pieces, true);
    EXPECT_LT(waiting, kMaxBatchMessages);
  }
}

TYPED_TEST(SessionStream, Fault_N10_BrokenBatchesAreRefused) {
  using Message = typename TypeParam::Message;
  MessageReader<Message> reader;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  RandomMessages random(7);
  const std::string message = *Encode(random.MakeAlternative<Message>(0));
  const auto batch = [](auto&& fill) {
    typename TypeParam::Proto carrier;
    fill(*carrier.mutable_batch());
    return carrier.SerializeAsString();
  };
  const std::string good = batch([&](v1::Batch& of) { of.add_messages(message); });
  this->ExpectRefused(reader, good, invalid, "batch is not allowed here");
  reader.AllowBatches();
  EXPECT_EQ(reader.Read(good)->messages.size(), 1u);
  this->ExpectRefused(reader, batch([](v1::Batch&) {}), invalid, "A batch is empty");
  this->ExpectRefused(reader, batch([&](v1::Batch& of) { of.add_messages(good); }), invalid,
                      "A batch has a piece, or another batch");
  this->ExpectRefused(reader,
                      batch([&](v1::Batch& of) { of.add_messages(this->Piece(message, true)); }),
                      invalid, "A batch has a piece, or another batch");
  this->ExpectRefused(reader, this->Piece(good, true), invalid, "batch is not allowed here");
  this->ExpectRefused(reader, batch([&](v1::Batch& of) {
                        of.add_messages(message);
                        of.add_messages("\xff\xff");
                      }),
                      invalid, "not a ");
  this->ExpectRefused(reader, batch([](v1::Batch& of) { of.add_frames(); }), invalid,
                      "A batch has a frame of 0 bytes");
  this->ExpectRefused(reader, batch([](v1::Batch& of) {
                        of.add_frames()->set_frame(std::string(kMaxBatchedFrameBytes + 1, 'f'));
                      }),
                      invalid, "A batch has a frame of 65537 bytes");
  this->ExpectRefused(reader, batch([](v1::Batch& of) {
                        of.add_frames()->set_frame("f");
                        of.mutable_frames(0)->set_stream(kMaxStreams);
                      }),
                      invalid, "for data stream 64");
  this->ExpectRefused(reader, batch([](v1::Batch& of) {
                        for (uint32_t i = 0; i <= kMaxBatchFrames; ++i) {
                          of.add_frames()->set_frame("f");
                        }
                      }),
                      invalid, "frames");
  ASSERT_TRUE(reader.Read(this->Piece("abc", false)).ok());
  this->ExpectRefused(reader, good, invalid, "between the pieces of one");
}

TYPED_TEST(SessionStream, Fault_N10_NothingStandsBetweenPieces) {
  using Message = typename TypeParam::Message;
  MessageReader<Message> reader;
  RandomMessages random(5);
  for (size_t i = 0; i < std::variant_size_v<Message>; ++i) {
    ASSERT_TRUE(reader.Read(this->Piece("abc", false)).ok());
    this->ExpectRefused(reader, *Encode(random.MakeAlternative<Message>(i)),
                        absl::StatusCode::kInvalidArgument,
                        "Another message arrived between the pieces of one, after 3 bytes");
  }
}

TYPED_TEST(SessionStream, Fault_N10_BrokenPiecesAreRefused) {
  MessageReader<typename TypeParam::Message> reader;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  this->ExpectRefused(reader, this->Piece("", true), invalid, "piece of a message is empty");
  this->ExpectRefused(reader, this->Piece("", false), invalid, "piece of a message is empty");
  this->ExpectRefused(reader, this->Piece("\xff\xff", true), invalid, "not a ");
  this->ExpectRefused(reader, this->Piece(this->Piece("a", true), true), invalid,
                      "piece is not allowed here; a whole message is expected");
  this->ExpectRefused(reader, "", invalid, "message is empty");
}

TYPED_TEST(SessionStream, Fault_N11_WhatIsHeldIsBounded) {
  MessageReader<typename TypeParam::Message> reader;
  this->ExpectRefused(reader, std::string(kMaxMessageBytes + 1, '\0'),
                      absl::StatusCode::kInvalidArgument, "4194305 bytes, more than 4194304");
  const std::string piece(kMaxMessageBytes - 64, 'x');
  while (reader.held() + piece.size() <= kMaxAssembledBytes) {
    ASSERT_TRUE(reader.Read(this->Piece(piece, false)).ok());
  }
  this->ExpectRefused(reader, this->Piece(piece, false), absl::StatusCode::kInvalidArgument,
                      "A message in pieces has more than 67108864 bytes");
}

// Regardless of the number of peers that begin a message and then stop.
TYPED_TEST(SessionStream, Fault_S6_WhatAllHoldIsBounded) {
  using Reader = MessageReader<typename TypeParam::Message>;
  ReaderBudgets budgets{ByteBudget(1000)};
  auto first = std::make_unique<Reader>(&budgets);
  Reader second(&budgets);
  ASSERT_TRUE(first->Read(this->Piece(std::string(600, 'x'), false)).ok());
  ASSERT_TRUE(second.Read(this->Piece(std::string(400, 'x'), false)).ok());
  this->ExpectRefused(second, this->Piece("x", false), absl::StatusCode::kResourceExhausted,
                      "Too many large messages arrive at once: the server can assemble 1000 bytes "
                      "at a time, and has no room for this one, of which 400 bytes have arrived.");
  first.reset();  // Its stream has ended.
  EXPECT_TRUE(budgets.assembling.Take(1000));
}

// ---- the largest of each kind

TensorSpec LongestSpec(uint32_t index) {
  std::string name = absl::StrCat("t", index, "/");
  name.resize(kMaxNameBytes, 'n');
  // An empty tensor may have sizes of any length.
  std::vector<uint64_t> shape(kMaxRank, kHuge);
  shape[0] = 0;
  return {name, DType::kF32, shape};
}

WorkerId LongestId(uint32_t index) {
  std::string id = absl::StrCat("w", 10000 + index, "-");  // In byte order.
  id.resize(kMaxWorkerIdBytes, 'w');
  return id;
}

Membership LargestMembership(uint32_t workers) {
  std::vector<WorkerId> members;
  for (uint32_t i = 0; i < workers; ++i) members.push_back(LongestId(i));
  return {{kHuge, kHuge},
          MemberList::WithRanks(std::move(members), std::vector<uint32_t>(workers, kMaxRanks))};
}

RoundValue LargestValue(uint32_t workers, uint32_t tensors) {
  RoundValue value;
  value.outcome = Outcome::kCommitted;
  value.reason = std::string(kMaxTextBytes, 'r');
  value.spec = RandomMessages(1).Make<RoundSpec>();
  for (uint32_t i = 0; i < workers; ++i) {
    value.contributors.push_back(
        {LongestId(i), {kHuge, kHuge}, kMaxCount, 1.0, kMaxRanks, LocalReduction::kDeterministic});
  }
  value.facts.tensor_squared_norms.assign(tensors, 1.0);
  value.generation = {kHuge, kHuge};
  value.contract_version = ~uint32_t{0};
  value.divisor = value.digest = kHuge;
  for (uint32_t i = 0; i < tensors; ++i) value.tensor_divisors.push_back({i, kHuge});
  value.layout_version = kMaxTensors;
  value.facts.nonfinite = NonFinite{LongestId(0), kMaxTensors - 1, kHuge};
  value.facts.totals = {kMaxTotalCount, kMaxTotalCount, kMaxTotalCount};
  return value;
}

VerdictRecord LargestRecord(uint32_t workers, uint32_t tensors) {
  return {kHuge,
          {kHuge, kHuge},
          {kHuge, kHuge},
          LargestValue(workers, tensors),
          LargestMembership(workers),
          kHuge};
}

LaneHistory LargestHistory(uint32_t workers, uint32_t tensors) {
  LaneHistory lane;
  lane.name = std::string(kMaxNameBytes, 'l');
  lane.lane = kMaxLaneIndexes - 1;
  for (uint32_t i = 0; i < tensors; ++i) lane.layout.push_back(LongestSpec(i));
  lane.verdicts.assign(kMaxRememberedVerdicts, LargestRecord(workers, tensors));
  lane.last_verdict = lane.chain = lane.begun = kHuge;
  lane.staged = {kHuge, {kHuge, kHuge}, {kHuge, kHuge}, LargestValue(workers, tensors)};
  lane.held_ballot = {kHuge, kHuge};
  return lane;
}

Hello LargestHello(uint32_t workers, std::vector<LaneHistory> lanes) {
  Hello hello;
  hello.job = std::string(kMaxLabelBytes, 'j') + "/" + std::string(kMaxLabelBytes, 'j');
  hello.run = std::string(kMaxRunIdBytes, 'r');
  hello.worker = LongestId(0);
  hello.nonce = hello.features = kHuge;
  hello.incarnation = {kHuge, kHuge};
  hello.membership = LargestMembership(workers);
  hello.lanes = std::move(lanes);
  return hello;
}

template <typename Message>
void ExpectTravels(const Message& message, size_t least_pieces) {
  const absl::StatusOr<std::vector<std::string>> pieces = EncodePieces(message);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  EXPECT_GE(pieces->size(), least_pieces);
  MessageReader<Message> reader;
  for (size_t i = 0; i < pieces->size(); ++i) {
    ASSERT_LE((*pieces)[i].size(), kMaxMessageBytes);
    const auto taken = reader.Read((*pieces)[i]);
    ASSERT_TRUE(taken.ok()) << taken.status();
    ASSERT_EQ(taken->messages.size(), i + 1 == pieces->size() ? 1u : 0u);
    if (!taken->messages.empty()) {
      EXPECT_TRUE(taken->messages[0].message == message);
    }
  }
}

TEST(LargestMessages, Fault_N11_TheLargestOfEachKindTravel) {
  LaneHistory lane = LargestHistory(kMaxWorkers, kMaxTensors);
  for (uint32_t i = 0; i < kMaxRanges; ++i) lane.held.push_back({i, 0, kMaxChunksPerTensor});
  ExpectTravels(ToAggregator(Register{lane.name, lane.kind, lane.layout}), 25);
  ExpectTravels(ToWorker(LaneLayout{lane.lane, lane.name, lane.kind, 0, lane.layout, kHuge, kHuge}),
                25);
  const VerdictRecord& record = lane.verdicts[0];
  ExpectTravels(ToWorker(Verdict{lane.lane, record, LongestId(1)}), 1);
  ExpectTravels(ToWorker(Prepared{lane.lane, kHuge, record.ballot, record.ballot, record.value}),
                1);
  ExpectTravels(ToWorker(Pull{lane.lane, kHuge, lane.held, lane.held, kHuge}), 1);

  Welcome welcome;
  welcome.token = welcome.term = kHuge;
  welcome.frame_bytes = kMaxPayloadBytes;
  welcome.heartbeat = absl::Seconds(1);
  welcome.membership = LargestMembership(kMaxWorkers);
  welcome.layouts = {{lane.lane, lane.name, lane.kind, 0, lane.layout, kHuge, kHuge}};
  welcome.open = {{lane.lane, kHuge, RoundPhase::kCollect, record.ballot, lane.held, kHuge}};
  welcome.verdicts = {{lane.lane, lane.verdicts}};
  ExpectTravels(ToWorker(welcome), 30);
  ExpectTravels(ToAggregator(LargestHello(kMaxWorkers, {std::move(lane)})), 30);
}

TEST(LargestMessages, Fault_N11_WhatIsLargerIsRefusedBeforeItIsSent) {
  const LaneHistory lane = LargestHistory(kMaxWorkers, kMaxTensors);
  const absl::StatusOr<std::vector<std::string>> pieces =
      EncodePieces(ToAggregator(LargestHello(kMaxWorkers, {lane, lane})));
  ASSERT_EQ(pieces.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pieces.status().message()), HasSubstr("bytes, more than 67108864"));
}

// The bound by which the aggregator refuses tensors that do not fit a hello.
TEST(LargestMessages, NoHistoryIsLargerThanTheAggregatorReckons) {
  using aggregator::HelloBytes;
  using aggregator::HistoryBytes;
  for (const uint32_t workers : {1, 2, 100, 10000}) {
    for (const uint32_t tensors : {0, 1, 100, 65536}) {
      SCOPED_TRACE(absl::StrCat(workers, " workers, ", tensors, " tensors"));
      const LaneHistory lane = LargestHistory(workers, tensors);
      Layout layout;
      aggregator::LayoutBytes bytes;
      for (const TensorSpec& spec : lane.layout) {
        layout.Append(spec);
        bytes.Add(spec);
      }
      const uint64_t bare = Encode(ToAggregator(LargestHello(workers, {})))->size();
      const uint64_t whole = Encode(ToAggregator(LargestHello(workers, {lane})))->size();
      EXPECT_LE(bare, HelloBytes(workers));
      EXPECT_LE(whole, HelloBytes(workers) + HistoryBytes(layout, bytes, nullptr, workers));
      // The bound is close.
      EXPECT_GE(whole + 32768,
                (HelloBytes(workers) + HistoryBytes(layout, bytes, nullptr, workers)) / 20 * 19);
    }
  }
  // A lane of chunks, of which every second one is held.
  LaneHistory lane = LargestHistory(10, 0);
  lane.layout = {{"t", DType::kU8, {1000 * kChunkBytes}}};
  for (uint32_t i = 0; i < 500; ++i)
    lane.held.push_back({kMaxTensors - 1, kMaxChunksPerTensor / 2 + i, 1});
  EXPECT_LE(Encode(ToAggregator(LargestHello(10, {lane})))->size(),
            HelloBytes(10) + HistoryBytes({}, {}, &lane.layout[0], 10));
}

// The numbers that limits.h and the documentation give.
TEST(LargestMessages, HowManyLanesAJobMayHave) {
  const auto lanes = [](uint64_t workers) {
    return (kMaxAssembledBytes - aggregator::HelloBytes(workers)) /
           aggregator::HistoryBytes({}, {}, nullptr, workers);
  };
  EXPECT_EQ(lanes(kMaxWorkers), 13u);
  EXPECT_GE(lanes(2000), 64u);
  EXPECT_EQ(aggregator::Config().max_history_bytes, kMaxAssembledBytes);
}

}  // namespace
}  // namespace basin::wire

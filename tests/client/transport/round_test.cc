// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whole rounds, from begin to the trainer's tensors.

#include <future>

#include <gtest/gtest.h>

#include "client/transport/source.h"
#include "kernels/cast.h"
#include "tests/client/transport/fake_aggregator.h"

namespace basin::client {
namespace {

// An opened source of a tensor t.
Source Opened(uint64_t number, const std::string& bytes, const wire::Encoding& encoding,
              const std::optional<ArenaPlace>& place, DType dtype = DType::kF32) {
  Source source(0, bytes.data(), bytes.size(), encoding);
  const uint64_t elements = bytes.size() / ElementSize(dtype);
  const TensorInfo info = {{"t", dtype, {elements}}, bytes.size(), kernels::TensorKey("t")};
  source.Open(number, std::make_shared<TensorInfo>(info), place);
  return source;
}

// A whole contribution.
Contribution Prepare(const std::string& bytes, const wire::Encoding& encoding = {},
                     DType dtype = DType::kF32) {
  Source source = Opened(1, bytes, encoding, std::nullopt, dtype);
  kernels::ContentDigest hash;
  source.Advance(bytes.size(), hash);
  return source.Begin();
}

std::string Copied(const RoundResult& result, TensorHandle tensor, size_t size) {
  std::string bytes(size, '\0');
  const absl::Status status = result.CopyTo(tensor, bytes.data(), bytes.size());
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

std::map<TensorIndex, std::string> Results(const Rig& rig, uint64_t seed) {
  std::map<TensorIndex, std::string> results;
  for (TensorIndex tensor = 0; tensor < rig.model.size(); ++tensor) {
    results[tensor] = Noise(*TensorBytes(rig.model[tensor]), seed + tensor);
  }
  return results;
}

TEST(Round, PushesUnderASmallWindowAndDeliversTheBits) {
  Rig rig(2);
  rig.window = 2 * kChunkBytes;
  rig.Join();
  rig.Begin();
  rig.PushAll();
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  EXPECT_EQ(rig.aggregator.Await<Begin>().spec.op, ReduceOp::kAverage);

  // Two chunks fill the window: nothing else is sent until they are acknowledged.
  rig.aggregator.AwaitQueued(1);
  EXPECT_EQ(rig.aggregator.queued(), 1u);
  const auto pushed = rig.TakeContribution(4);
  for (TensorIndex tensor = 0; tensor < 2; ++tensor) {
    EXPECT_EQ(pushed.at(tensor), rig.gradients.at(tensor));
  }
  const Commit commit = rig.aggregator.Await<Commit>();
  EXPECT_EQ(commit.chunks, 4u);
  EXPECT_EQ(commit.digest, DigestOf("a", rig.gradients.at(0)) + DigestOf("b", rig.gradients.at(1)));

  const auto results = Results(rig, 1);
  rig.SendResults(results, 1);
  auto waiting = std::async(std::launch::async, [&] {
    return rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  });
  const VerdictRecord record = rig.Conclude(rig.ValueOf(results), 1, 0);
  const RoundOutcome outcome = waiting.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ((*outcome)->record(), record);
  EXPECT_FALSE((*outcome)->rejected().has_value());
  for (TensorHandle tensor = 0; tensor < 3; ++tensor) {
    ASSERT_TRUE((*outcome)->Has(tensor));
    EXPECT_EQ(Copied(**outcome, tensor, results.at(tensor).size()), results.at(tensor));
  }
  char small[8];
  EXPECT_EQ((*outcome)->CopyTo(0, small, sizeof(small)).code(), absl::StatusCode::kInvalidArgument);
  rig.Until([&](const Runner&) { return rig.aggregator.unconsumed() == 0; });
}

TEST(Round, WhoHearsTheOutcomeFindsThePlaceThatCameWithIt) {
  Rig rig;
  rig.Join();
  rig.Begin();
  rig.PushAll();
  std::promise<JobView> told;
  const auto look = [&](const RoundOutcome&) { told.set_value(rig.worker->view()); };
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane, look).ok());
  rig.TakeContribution(4);
  const auto results = Results(rig, 1);
  rig.SendResults(results, 1);
  rig.membership = {{kTerm, 2}, {{"w0", "w1", "w2"}}};  // From the verdict.
  rig.Conclude(rig.ValueOf(results), 1, 0);
  EXPECT_EQ(told.get_future().get().membership, rig.membership);
}

TEST(Round, ATensorWithAnOwnerIsHeldAsLongAsItIsRead) {
  Rig rig;
  rig.Join();
  rig.Begin();
  auto bytes = std::make_shared<std::string>(rig.gradients[0]);
  const std::weak_ptr<std::string> held = bytes;
  ASSERT_TRUE(rig.worker->Push(rig.lane.lane, {0, bytes->data(), bytes->size(), {}, bytes}).ok());
  bytes.reset();
  EXPECT_FALSE(held.expired());
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  EXPECT_EQ(rig.TakeContribution(3).at(0), rig.gradients[0]);
  auto results = Results(rig, 1);
  results.erase(1);
  results.erase(2);
  rig.SendResults(results, 1);
  rig.Conclude(rig.ValueOf(results), 1, 0);
  ASSERT_TRUE(rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration()).ok());
  EXPECT_TRUE(held.expired());
}

TEST(Round, ResultsOfRoundsInARowDoNotMix) {
  Rig rig;
  rig.Join();
  uint64_t chain = 0;
  std::vector<RoundOutcome> kept;
  for (RoundNumber round = 1; round <= 3; ++round) {
    rig.Begin();
    rig.PushAll();
    ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
    rig.TakeContribution(4, round);
    const auto results = Results(rig, 10 * round);
    rig.SendResults(results, round);
    chain = rig.Conclude(rig.ValueOf(results), round, chain).chain;
    kept.push_back(rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration()));
    ASSERT_TRUE(kept.back().ok()) << kept.back().status();
  }
  for (RoundNumber round = 1; round <= 3; ++round) {
    const auto results = Results(rig, 10 * round);
    EXPECT_EQ(Copied(**kept[round - 1], 0, results.at(0).size()), results.at(0));
  }
}

TEST(Round, SkippedTensorsHaveTheResultOfTheOthers) {
  Rig rig;
  rig.Join();
  rig.Begin();
  ASSERT_TRUE(
      rig.worker->Push(rig.lane.lane, {0, rig.gradients[0].data(), rig.gradients[0].size()}).ok());
  ASSERT_TRUE(rig.worker->Skip(rig.lane.lane, 1).ok());
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  rig.TakeContribution(3);
  const Commit commit = rig.aggregator.Await<Commit>();
  EXPECT_TRUE(commit.present.Test(0));
  EXPECT_FALSE(commit.present.Test(1));
  auto results = Results(rig, 1);
  results.erase(2);  // All workers skipped c.
  rig.SendResults(results, 1);
  rig.Conclude(rig.ValueOf(results), 1, 0);
  const RoundOutcome outcome = rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(Copied(**outcome, 1, results.at(1).size()), results.at(1));
  EXPECT_FALSE((*outcome)->Has(2));
  EXPECT_FALSE((*outcome)->Has(99));
  const absl::Status skipped = (*outcome)->CopyTo(2, nullptr, 0);
  EXPECT_EQ(skipped.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(skipped.message(),
            "Round 1 has no result for tensor c: no contributor pushed it. Keep its old value.");
  EXPECT_EQ((*outcome)->CopyTo(99, nullptr, 0).message(),
            "Round 1 has no result for handle 99: there are 3 tensors in its lane. Use a handle "
            "that registration returned.");
}

TEST(RoundResult, WithoutAResultSaysWhetherNobodyPushedItOrNothingWeighed) {
  const auto why = [](uint64_t divisor, Denominator denominator) {
    VerdictRecord record;
    record.round = 4;
    record.value.outcome = Outcome::kCommitted;
    record.value.spec.op = ReduceOp::kWeightedAverage;
    record.value.spec.denominator = denominator;
    record.value.layout_version = 2;
    record.value.divisor = divisor;
    record.value.tensor_divisors = {{1, 0}};
    const RoundResult result(record, std::nullopt, {{"a", DType::kF32, 0}, {"b", DType::kF32, 1}},
                             {}, std::make_shared<StagedRound>());
    return std::string(result.CopyTo(1, nullptr, 0).message());
  };
  const std::string begin = "Round 4 has no result for tensor b: ";
  const std::string end = ". Keep its old value.";
  EXPECT_EQ(why(3, Denominator::kAll), begin + "no contributor pushed it" + end);
  EXPECT_EQ(why(3, Denominator::kPresent),
            begin + "no contributor with a weight above 0 pushed it" + end);
  EXPECT_EQ(why(0, Denominator::kAll), begin + "the weights of all contributors are 0" + end);
}

TEST(RoundResult, FactsOfAllTensorsAreThoseOfEach) {
  VerdictRecord record;
  record.value.outcome = Outcome::kCommitted;
  record.value.layout_version = 4;
  record.value.divisor = 4;
  record.value.tensor_divisors = {{1, 0}, {2, 2}};
  record.value.facts.tensor_squared_norms = {9, 5, 25, 0};
  // Registered in another order than the job has them; one is not in the job.
  const RoundResult result(record, std::nullopt,
                           {{"c", DType::kF32, 2},
                            {"elsewhere", DType::kF32, std::nullopt},
                            {"b", DType::kF32, 1},
                            {"a", DType::kF32, 0},
                            {"d", DType::kI64, 3}},
                           {}, std::make_shared<StagedRound>());
  const auto all = result.AllFacts();
  ASSERT_EQ(all.size(), 5u);
  for (TensorHandle tensor = 0; tensor < all.size(); ++tensor) {
    EXPECT_EQ(all[tensor].divisor, result.FactsOf(tensor).divisor);
    EXPECT_EQ(all[tensor].squared_norm, result.FactsOf(tensor).squared_norm);
  }
  EXPECT_EQ(all[0].divisor, 2u);
  EXPECT_EQ(all[0].squared_norm, 25);
  EXPECT_EQ(all[1].divisor, 0u);
  EXPECT_EQ(all[2].squared_norm, std::nullopt) << "nobody pushed it";
  EXPECT_EQ(all[3].divisor, 4u);
  EXPECT_EQ(all[4].divisor, 4u);
  EXPECT_EQ(all[4].squared_norm, std::nullopt) << "integers have none";
  EXPECT_EQ(result.FactsOf(5).divisor, 0u) << "there is no such handle";
}

TEST(RoundResult, Criterion_3_8_ANormIsThereWhereSomethingHasOne) {
  VerdictRecord record;
  record.value.outcome = Outcome::kCommitted;
  record.value.layout_version = 2;
  record.value.divisor = 1;
  record.value.facts.squared_norm = 0;
  const auto norm = [&](DType first, DType second, std::vector<TensorDivisor> divisors) {
    record.value.tensor_divisors = std::move(divisors);
    // The last one came after the round.
    const std::vector<TensorSpec> layout = {
        {"a", first, {1}}, {"b", second, {1}}, {"c", DType::kF32, {1}}};
    return RoundResult(record, std::nullopt, {}, layout, std::make_shared<StagedRound>())
        .squared_norm();
  };
  EXPECT_EQ(norm(DType::kI64, DType::kF16, {}), 0);
  EXPECT_EQ(norm(DType::kI64, DType::kF16, {{1, 0}}), std::nullopt) << "nobody pushed the floats";
  EXPECT_EQ(norm(DType::kI64, DType::kU8, {}), std::nullopt);
  record.value.facts.squared_norm = std::nan("");
  EXPECT_TRUE(std::isnan(norm(DType::kF64, DType::kU8, {}).value_or(0)));
}

TEST(Round, Criterion_3_8_IntegersHaveNoNorm) {
  const int64_t integers[] = {3, 4};
  std::string bytes(reinterpret_cast<const char*>(integers), sizeof(integers));
  EXPECT_EQ(Prepare(bytes, {}, DType::kI64).squared_norm, std::nullopt);
  const float floats[] = {3, 4};
  bytes.assign(reinterpret_cast<const char*>(floats), sizeof(floats));
  EXPECT_EQ(Prepare(bytes).squared_norm, 25);
  EXPECT_EQ(Prepare("").squared_norm, 0) << "it is empty";
}

TEST(Round, NarrowTensorsTravelAsCast) {
  Rig rig;
  rig.Join();
  std::vector<float> values(kChunkBytes * 5 / 8);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0F + static_cast<float>(i) / 512;
  rig.Begin();
  {
    std::vector<float> pushed = values;  // Free again when Push has returned.
    ASSERT_TRUE(rig.worker
                    ->Push(rig.lane.lane,
                           {0, pushed.data(), pushed.size() * sizeof(float), {DType::kBF16, 3}})
                    .ok());
  }
  EXPECT_EQ(
      CodeOf(rig.worker->Push(rig.lane.lane,
                              {1, values.data(), values.size() * sizeof(float), {DType::kF64, 0}})),
      ErrorCode::kInvalidArgument);
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  std::string wire(values.size() * 2, '\0');
  kernels::CastToWire(values.data(), values.size(), DType::kBF16, 3, wire.data());
  std::string taken;
  while (taken.size() < wire.size()) {
    const TakenFrame frame = rig.aggregator.AwaitFrame();
    ASSERT_FALSE(frame.payload.empty());
    EXPECT_EQ(frame.header.encoding.wire_dtype, DType::kBF16);
    EXPECT_EQ(frame.header.encoding.wire_exponent, 3);
    taken += frame.payload;
    const auto& sent = std::get<wire::ContributionHeader>(frame.header.kind);
    rig.aggregator.Send(Credit{kLane, 1, rig.window, {sent.runs.front().range}, {}});
  }
  EXPECT_EQ(taken, wire);
  // Digests cover the sent bytes.
  Digest digest = 0;
  for (uint32_t chunk = 0; chunk * kChunkBytes / 2 < wire.size(); ++chunk) {
    digest += DigestOf("a", wire.substr(chunk * kChunkBytes / 2, kChunkBytes / 2), chunk);
  }
  EXPECT_EQ(rig.aggregator.Await<Commit>().digest, digest);
}

TEST(Round, AbortedIsAnErrorAndTheNextRoundGoesOn) {
  Rig rig;
  rig.Join();
  rig.Begin();
  rig.PushAll();
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  rig.TakeContribution(4);
  RoundValue value;
  value.outcome = Outcome::kAborted;
  value.reason = "w1 was lost";
  const VerdictRecord record = rig.Conclude(value, 1, 0);
  const RoundOutcome outcome = rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  EXPECT_EQ(CodeOf(outcome.status()), ErrorCode::kRoundAborted);
  EXPECT_NE(outcome.status().message().find("w1 was lost"), std::string::npos);
  rig.Begin();
  rig.PushAll();
  EXPECT_EQ(rig.TakeContribution(4, 2).at(0), rig.gradients.at(0));
  EXPECT_NE(record.chain, 0u);
}

TEST(Round, AWithdrawnContributionStillGetsTheResult) {
  Rig rig;
  rig.Join();
  rig.Begin();
  rig.PushAll();
  ASSERT_TRUE(rig.worker->Withdraw({rig.lane.lane, "loss is NaN"}).ok());
  EXPECT_EQ(rig.aggregator.Await<Withdraw>().reason, "loss is NaN");
  rig.aggregator.DropQueued();  // The part that was written before.
  const auto results = Results(rig, 1);
  rig.SendResults(results, 1);
  rig.aggregator.Send(Rejected{{ErrorCode::kMismatch, "not counted"}, kLane, 1});
  rig.Conclude(rig.ValueOf(results), 1, 0);
  const RoundOutcome outcome = rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ((*outcome)->rejected()->code, ErrorCode::kMismatch);
  EXPECT_EQ(Copied(**outcome, 1, 100), results.at(1));
}

TEST(Round, AllreduceInOneCall) {
  Rig rig;
  rig.Join();
  std::string b = rig.gradients[1];
  BeginRound begin;
  begin.lane = rig.lane.lane;
  begin.spec.op = ReduceOp::kSum;
  auto call = std::async(std::launch::async, [&] {
    Source sources[] = {{0, rig.gradients[0].data(), rig.gradients[0].size()},
                        {1, b.data(), b.size()}};
    return rig.worker->Allreduce(begin, sources, {{1, b.data(), b.size()}},
                                 absl::InfiniteDuration());
  });
  rig.TakeContribution(4);
  rig.aggregator.Await<Commit>();
  auto results = Results(rig, 1);
  results.erase(2);
  rig.SendResults(results, 1);
  RoundValue value = rig.ValueOf(results);
  value.spec.op = ReduceOp::kSum;
  rig.Conclude(value, 1, 0);
  const RoundOutcome outcome = call.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(b, results.at(1));
}

// Longer than several frames, so that the first ones are sent while the rest is read.
constexpr uint64_t kLong = 25 * kChunkBytes / 8;

TEST(Round, ALargeTensorIsSentWhileItIsRead) {
  for (const int call : {0, 1, 2}) {
    SCOPED_TRACE(call);
    Rig rig(2, nullptr, kLong);
    rig.Join();
    std::string b = rig.gradients[1];
    auto trainer = std::async(std::launch::async, [&] {
      BeginRound begin;
      begin.lane = rig.lane.lane;
      begin.spec.op = ReduceOp::kSum;
      const std::string& a = rig.gradients[0];
      if (call == 0) {
        Source sources[] = {{1, b.data(), b.size()}, {0, a.data(), a.size()}, {2, nullptr, 0}};
        return rig.worker->Allreduce(begin, sources, {}, absl::InfiniteDuration()).status();
      }
      absl::Status status = rig.worker->Begin(begin);
      if (call == 1) {
        rig.PushAll();
      } else {
        Source sources[] = {{0, a.data(), a.size()}, {1, b.data(), b.size()}, {2, nullptr, 0}};
        status.Update(rig.worker->Push(rig.lane.lane, sources));
      }
      status.Update(rig.worker->Commit(rig.lane.lane));
      return status;
    });
    const auto pushed = rig.TakeContribution(14);
    EXPECT_TRUE(pushed.at(0) == rig.gradients[0]);
    EXPECT_TRUE(pushed.at(1) == rig.gradients[1]);
    const Commit commit = rig.aggregator.Await<Commit>();
    EXPECT_EQ(commit.digest, DigestOf("a", rig.gradients[0]) + DigestOf("b", rig.gradients[1]));
    double norm = 0;
    for (const TensorHandle tensor : {0, 1}) norm += *Prepare(rig.gradients[tensor]).squared_norm;
    EXPECT_EQ(commit.squared_norm, norm);
    const auto results = Results(rig, 1);
    rig.SendResults(results, 1);
    RoundValue value = rig.ValueOf(results);
    value.spec.op = ReduceOp::kSum;
    rig.Conclude(value, 1, 0);
    EXPECT_TRUE(trainer.get().ok());
  }
}

// It is pushed with the first frame of the others, before it has been cast.
TEST(Round, ANarrowTensorBehindALargeOneIsSentAsItWasCast) {
  Rig rig(2, nullptr, kLong);
  rig.Join();
  rig.Begin();
  const std::string& a = rig.gradients[0];
  const std::string& b = rig.gradients[1];
  std::string cast(b.size() / 2, '\0');
  kernels::CastToWire(b.data(), b.size() / sizeof(float), DType::kBF16, 0, cast.data());
  Source sources[] = {
      {0, a.data(), a.size()}, {1, b.data(), b.size(), {DType::kBF16, 0}}, {2, nullptr, 0}};
  ASSERT_TRUE(rig.worker->Push(rig.lane.lane, sources).ok());
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  const auto pushed = rig.TakeContribution(14);
  EXPECT_TRUE(pushed.at(0) == a);
  EXPECT_TRUE(pushed.at(1).substr(0, cast.size()) == cast);
  rig.worker->Abandon().IgnoreError();
}

// The second push of the tensor, which is refused, adds nothing to the first.
TEST(Round, AGrowthOfAPushThatWasRefusedIsIgnored) {
  Rig rig(1, nullptr, kLong);
  rig.Join();
  rig.Begin();
  const std::string other = Noise(rig.gradients[0].size(), 7);
  ASSERT_TRUE(
      rig.worker->Push(rig.lane.lane, {0, rig.gradients[0].data(), rig.gradients[0].size()}).ok());
  ASSERT_TRUE(rig.worker->Push(rig.lane.lane, {0, other.data(), other.size()}).ok());
  EXPECT_FALSE(rig.worker->Commit(rig.lane.lane).ok());
  EXPECT_TRUE(rig.TakeContribution(13).at(0) == rig.gradients[0]);
  ASSERT_TRUE(rig.worker->Withdraw({rig.lane.lane, "pushed twice"}).ok());
}

TEST(Contribution, InPartsItIsThatOfTheWhole) {
  const std::string bytes = Noise(5 * kChunkBytes / 2, 3);
  kernels::ContentDigest hash;
  for (const wire::Encoding encoding : {wire::Encoding{}, wire::Encoding{DType::kF16, -1}}) {
    const bool narrow = encoding.wire_dtype != DType::kUnspecified;
    for (const bool shared : {false, true}) {
      std::optional<ArenaPlace> place;
      if (shared) place = ArenaPlace{*Segment::Create(bytes.size() + 4), 4};
      const Contribution whole = Prepare(bytes, encoding);
      Source parts = Opened(7, bytes, encoding, place);
      parts.Advance(1, hash);
      EXPECT_EQ(parts.done(), narrow && !shared) << "a copy that is not shared is made at once";
      Contribution begun = parts.Begin();
      EXPECT_EQ(begun.growing, parts.done() ? 0u : 7u);
      while (!parts.done()) {
        EXPECT_LE(parts.Advance(kChunkBytes, hash), kChunkBytes);
        const Growth growth = parts.TakeGrowth();
        EXPECT_EQ(growth.number, 7u);
        EXPECT_EQ(growth.last, parts.done());
        begun.digests.insert(begun.digests.end(), growth.digests.begin(), growth.digests.end());
        begun.squared_norm = growth.squared_norm;
      }
      EXPECT_EQ(begun.digests, whole.digests);
      EXPECT_EQ(begun.squared_norm, whole.squared_norm);
      if (!shared) continue;
      const std::string copied(place->at(), whole.wire_bytes);
      EXPECT_TRUE(copied == std::string(static_cast<const char*>(whole.data), whole.wire_bytes));
    }
  }
}

TEST(Round, StagedResultsAreSuppliedUntilTheNextRoundsFirstResult) {
  Rig rig;
  rig.Join();
  rig.Begin();
  rig.PushAll();
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  rig.TakeContribution(4);
  const auto results = Results(rig, 1);
  rig.SendResults(results, 1);
  rig.Conclude(rig.ValueOf(results), 1, 0);
  RoundOutcome outcome = rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  outcome = absl::CancelledError();  // The trainer has released it; the library has not.

  rig.aggregator.Send(Supply{kLane, 1, {kTerm, 1}, {{0, 1, 2}}});
  const TakenFrame frame = rig.aggregator.AwaitFrame();
  const auto& header = std::get<wire::SupplyHeader>(frame.header.kind);
  EXPECT_EQ(RangesOf(header.runs), (ChunkRanges{{0, 1, 2}}));
  EXPECT_EQ(header.ballot, (Ballot{kTerm, 1}));
  EXPECT_EQ(frame.payload, results.at(0).substr(kChunkBytes));
  ASSERT_EQ(frame.header.chunk_digests.size(), 2u);
  EXPECT_EQ(frame.header.chunk_digests[1], DigestOf("a", results.at(0).substr(2 * kChunkBytes), 2));
}

}  // namespace
}  // namespace basin::client

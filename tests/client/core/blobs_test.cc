// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Values: announcing, serving and getting them, and how each of these fails.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

const BlobKey kKey{"g", "a", 7};

// The digest of chunk i of every value is 10 + i.
Digest DigestOf(uint32_t chunks) {
  Digest digest = 0;
  for (uint32_t i = 0; i < chunks; ++i) digest += 10 + i;
  return digest;
}

TensorSpec OfChunks(uint32_t chunks) { return F32("a", chunks * kChunkBytes / 4); }

BlobReceived Frame(uint32_t first, uint32_t count, const BlobKey& key = kKey) {
  BlobReceived frame{key, first, count, {}};
  for (uint32_t i = 0; i < count; ++i) frame.digests.push_back(10 + first + i);
  return frame;
}

BlobKnown Known(uint32_t chunks, const BlobKey& key = kKey) {
  return {key, OfChunks(chunks), DigestOf(chunks), "w-1"};
}

Harness Getting(const Config& config = TestConfig()) {
  Harness worker(config);
  worker.Connect();
  worker.Do(GetBlob{kKey, std::nullopt, std::nullopt, worker.now + absl::Seconds(60)});
  return worker;
}

TEST(AnnounceTest, IsSaidNowAndInEverySession) {
  Harness worker;
  worker.Connect();
  const AnnounceBlob value{kKey, OfChunks(3), 5};
  EXPECT_EQ(worker.Do(value).OneSent<Announce>(), (Announce{kKey, OfChunks(3), 5}));
  worker.Do(SessionDown{""});
  EXPECT_TRUE(worker.Do(AnnounceBlob{{"g", "b", 7}, OfChunks(1), 6}).all.empty());
  EXPECT_EQ(worker.Connect().Sent<Announce>().size(), 2u);
}

TEST(AnnounceTest, WhatIsServedNoMoreIsNotSaidAgain) {
  Harness worker;
  worker.Connect();
  worker.Do(AnnounceBlob{kKey, OfChunks(3), 5});
  worker.Do(StopServing{kKey.lane, kKey.tensor});
  EXPECT_EQ(worker.client.blobs().announced(), 0u);
  worker.Do(SessionDown{""});
  EXPECT_FALSE(worker.Connect().HasSent<Announce>());
}

TEST(AnnounceTest, NonsenseAndBoundsAreRefused) {
  Config config = TestConfig();
  config.max_values = 1;
  Harness worker(config);
  worker.Do(AnnounceBlob{kKey, OfChunks(1), 0});
  const struct {
    AnnounceBlob call;
    ErrorCode code;
  } cases[] = {
      {{{"g", "a", 6}, OfChunks(1), 0}, ErrorCode::kFailedPrecondition},
      {{{"g", "a", 8}, F32("a", UINT64_MAX), 0}, ErrorCode::kInvalidArgument},
      {{{"g", "b", 7}, OfChunks(1), 0}, ErrorCode::kResourceExhausted},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(worker.Do(test.call).One<Refused>().error.code, test.code);
  }
  EXPECT_EQ(worker.client.blobs().announced(), 1u);
  EXPECT_FALSE(worker.Do(AnnounceBlob{{"g", "a", 8}, OfChunks(1), 0}).Has<Refused>());
}

TEST(AskTest, ChunksGoOverOneStreamInOrder) {
  Harness worker;
  worker.Connect();
  worker.Do(AnnounceBlob{kKey, OfChunks(5), 0});
  const std::vector<SendBlob> frames = worker.Receive(Ask{kKey, 1, 99}).Of<SendBlob>();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].first, 1u);
  EXPECT_EQ(frames[0].count, 2u);
  EXPECT_EQ(frames[1].first, 3u);
  EXPECT_EQ(frames[1].count, 2u);
  EXPECT_EQ(frames[0].stream, frames[1].stream);
  EXPECT_TRUE(worker.Receive(Ask{{"g", "a", 6}, 0, 1}).all.empty()) << "another version";
  EXPECT_TRUE(worker.Receive(Ask{{"g", "x", 7}, 0, 1}).all.empty());
  EXPECT_TRUE(worker.Receive(Ask{kKey, 5, 1}).all.empty());
  worker.Do(StreamDown{0});
  worker.Do(StreamDown{1});
  EXPECT_TRUE(worker.Receive(Ask{kKey, 0, 1}).all.empty());
}

TEST(GetTest, AsksWhatItIsAndThenForItsChunks) {
  Harness worker;
  worker.Connect();
  const Actions get = worker.Do(GetBlob{kKey, OfChunks(3), "w-1", worker.now + absl::Seconds(60)});
  EXPECT_EQ(get.OneSent<Get>(), (Get{kKey, OfChunks(3), "w-1", 0, 0, absl::Seconds(60)}));
  const Get chunks = worker.Receive(Known(3)).OneSent<Get>();
  EXPECT_EQ(chunks.first, 0u);
  EXPECT_EQ(chunks.count, 3u);
  const Actions some = worker.Do(Frame(0, 2));
  EXPECT_EQ(some.One<KeepBlob>().count, 2u);
  EXPECT_FALSE(some.Has<BlobReady>());
  const Actions last = worker.Do(Frame(1, 2));
  EXPECT_EQ(last.One<KeepBlob>().first, 2u);
  EXPECT_EQ(last.One<KeepBlob>().count, 1u) << "chunk 1 is held already";
  EXPECT_EQ(last.One<BlobReady>().key, kKey);
  EXPECT_EQ(last.One<BlobReady>().source, "w-1");
  EXPECT_EQ(worker.client.blobs().fetching(), 0u);
  EXPECT_TRUE(worker.Do(Frame(0, 3)).all.empty());
  EXPECT_TRUE(worker.Receive(Known(3)).all.empty());
}

TEST(GetTest, ChunksAreAskedForAWindowAtATime) {
  Config config = TestConfig();
  config.blob_window_chunks = 4;
  Harness worker = Getting(config);
  std::vector<Get> asked = worker.Receive(Known(10)).Sent<Get>();
  uint32_t received = 0;
  size_t next = 0;
  while (next < asked.size()) {
    const Get get = asked[next++];
    for (uint32_t i = 0; i < get.count; ++i) {
      ++received;
      const Actions actions = worker.Do(Frame(get.first + i, 1));
      for (const Get& more : actions.Sent<Get>()) asked.push_back(more);
      uint32_t open = 0;
      for (const Get& one : asked) open += one.count;
      EXPECT_LE(open - received, 4u);
    }
  }
  EXPECT_EQ(received, 10u);
  EXPECT_EQ(worker.client.blobs().fetching(), 0u);
}

TEST(GetTest, AnEmptyValueIsReadyAsSoonAsItIsKnown) {
  Harness worker = Getting();
  BlobKnown known = Known(0);
  EXPECT_TRUE(worker.Receive(known).Has<BlobReady>());
}

TEST(GetTest, OnlySoManyAreFetchedAtOnce) {
  Config config = TestConfig();
  config.max_fetches = 1;
  Harness worker = Getting(config);
  const BlobKey second{"g", "b", 7};
  const BlobKey third{"g", "c", 7};
  const BlobKey fourth{"g", "d", 7};
  for (const BlobKey& key : {second, third, fourth}) {
    worker.Do(GetBlob{key, std::nullopt, std::nullopt, worker.now + absl::Seconds(60)});
  }
  EXPECT_TRUE(worker.Receive(Known(1)).HasSent<Get>());
  EXPECT_FALSE(worker.Receive(Known(1, second)).HasSent<Get>());
  EXPECT_FALSE(worker.Receive(Known(0, third)).HasSent<Get>());
  EXPECT_FALSE(worker.Receive(Known(1, fourth)).HasSent<Get>());
  EXPECT_TRUE(worker.Do(Frame(0, 1, second)).all.empty()) << "not asked for";
  // A value that waits for its turn may fail.
  EXPECT_EQ(worker.Receive(GetFailed{second, {ErrorCode::kUnavailable, "gone"}})
                .One<BlobFailed>()
                .error.text,
            "gone");
  const Actions done = worker.Do(Frame(0, 1));
  EXPECT_EQ(done.Of<BlobReady>().size(), 2u) << "the first, and the third, which is empty";
  EXPECT_EQ(done.OneSent<Get>().key, fourth);
}

TEST(GetTest, Fault_W18_AnotherSourceWithTheSameValueGoesOn) {
  Harness worker = Getting();
  worker.Receive(Known(3));
  worker.Do(Frame(0, 2));
  BlobKnown other = Known(3);
  other.source = "w-2";
  worker.Receive(other);
  EXPECT_EQ(worker.Do(Frame(2, 1)).One<BlobReady>().source, "w-2");
}

TEST(GetTest, Fault_W18_AnotherValueStartsFromTheBeginningAndIsNeverMixed) {
  Harness worker = Getting();
  worker.Receive(Known(3));
  worker.Do(Frame(0, 2));
  BlobKnown other = Known(3);
  other.digest = 1 + 2 + 3;
  EXPECT_EQ(worker.Receive(other).OneSent<Get>().first, 0u);
  EXPECT_TRUE(worker.Do(BlobReceived{kKey, 0, 3, {1, 2, 3}}).Has<BlobReady>());
}

TEST(GetTest, Fault_W18_FailureIsTyped) {
  Harness worker = Getting();
  worker.Receive(Known(3));
  const Error error{ErrorCode::kUnavailable, "worker w-1 was lost"};
  EXPECT_EQ(worker.Receive(GetFailed{kKey, error}).One<BlobFailed>().error, error);
  EXPECT_TRUE(worker.Receive(GetFailed{kKey, error}).all.empty());
}

TEST(GetTest, AWrongDigestIsFetchedAgainOnce) {
  Harness worker = Getting();
  worker.Receive(Known(2));
  const Actions first = worker.Do(BlobReceived{kKey, 0, 2, {1, 1}});
  EXPECT_FALSE(first.Has<BlobReady>());
  EXPECT_EQ(first.OneSent<Get>().count, 2u);
  Harness right = worker;
  EXPECT_TRUE(right.Do(Frame(0, 2)).Has<BlobReady>());
  EXPECT_EQ(worker.Do(BlobReceived{kKey, 0, 2, {1, 1}}).One<BlobFailed>().error.code,
            ErrorCode::kDataCorrupt);
}

TEST(GetTest, AnUnexpectedShapeFails) {
  Harness worker;
  worker.Connect();
  worker.Do(GetBlob{kKey, OfChunks(2), std::nullopt, absl::InfiniteFuture()});
  const Error error = worker.Receive(Known(3)).One<BlobFailed>().error;
  EXPECT_EQ(error.code, ErrorCode::kMismatch);
  EXPECT_NE(error.text.find("w-1"), std::string::npos);

  Harness other = Getting();
  BlobKnown known = Known(1);
  known.spec.shape = {UINT64_MAX};
  EXPECT_EQ(other.Receive(known).One<BlobFailed>().error.code, ErrorCode::kInvalidArgument);
}

TEST(GetTest, HasADeadline) {
  Harness worker;
  worker.Connect();
  worker.Do(GetBlob{kKey, std::nullopt, "w-1", worker.now + absl::Milliseconds(300)});
  EXPECT_EQ(worker.client.NextDeadline(), worker.now + absl::Milliseconds(300));
  const Error error = worker.Pass(absl::Milliseconds(300)).One<BlobFailed>().error;
  EXPECT_EQ(error.code, ErrorCode::kDeadlineExceeded);
  EXPECT_NE(error.text.find("tensor a"), std::string::npos);
  EXPECT_NE(error.text.find("worker w-1"), std::string::npos);
}

TEST(GetTest, WithoutADeadlineItWaitsForEver) {
  Harness worker;
  worker.Connect();
  worker.Do(GetBlob{kKey, std::nullopt, std::nullopt, absl::InfiniteFuture()});
  EXPECT_FALSE(worker.Pass(absl::Hours(48)).Has<BlobFailed>());
  worker.Receive(Known(1));
  EXPECT_TRUE(worker.Do(Frame(0, 1)).Has<BlobReady>());
}

TEST(GetTest, AtItsDeadlineItSaysThatNobodyIsConnected) {
  Harness worker;
  worker.Do(GetBlob{kKey, std::nullopt, std::nullopt, worker.now + absl::Minutes(5)});
  EXPECT_FALSE(worker.Pass(absl::Minutes(5) - absl::Milliseconds(1)).Has<BlobFailed>());
  const Error error = worker.Pass(absl::Milliseconds(1)).One<BlobFailed>().error;
  EXPECT_NE(error.text.find("not connected"), std::string::npos) << error.text;
}

TEST(GetTest, ChunksThatDoNotComeAreAskedForAgain) {
  Harness worker = Getting();
  worker.Receive(Known(4));
  worker.Do(Frame(1, 1));
  EXPECT_FALSE(worker.Pass(absl::Milliseconds(1999)).HasSent<Get>());
  const std::vector<Get> again = worker.Pass(absl::Milliseconds(1)).Sent<Get>();
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].first, 0u);
  EXPECT_EQ(again[0].count, 1u);
  EXPECT_EQ(again[1].first, 2u);
  EXPECT_EQ(again[1].count, 2u);
  EXPECT_FALSE(worker.Pass(absl::Milliseconds(1000)).HasSent<Get>());
}

TEST(GetTest, GoesOnInANewSession) {
  Harness worker = Getting();
  worker.Receive(Known(4));
  worker.Do(Frame(1, 1));
  worker.Do(SessionDown{""});
  const Get what = worker.Connect().OneSent<Get>();
  EXPECT_EQ(what.count, 0u);
  EXPECT_TRUE(worker.Do(Frame(0, 1)).all.empty()) << "what it is must be known first";
  const std::vector<Get> rest = worker.Receive(Known(4)).Sent<Get>();
  ASSERT_EQ(rest.size(), 2u);
  worker.Do(Frame(0, 1));
  EXPECT_TRUE(worker.Do(Frame(2, 2)).Has<BlobReady>());
}

TEST(GetTest, WrongFramesAreIgnored) {
  Harness worker = Getting();
  EXPECT_TRUE(worker.Do(Frame(0, 1)).all.empty()) << "before it is known";
  worker.Receive(Known(2));
  EXPECT_TRUE(worker.Do(Frame(1, 2)).all.empty());
  EXPECT_TRUE(worker.Do(Frame(0, 0)).all.empty());
  EXPECT_TRUE(worker.Do(BlobReceived{kKey, 0, 2, {1}}).all.empty());
}

TEST(GetTest, TwiceAndTooManyAreRefused) {
  Config config = TestConfig();
  config.max_values = 1;
  Harness worker = Getting(config);
  EXPECT_EQ(worker.Do(GetBlob{kKey, {}, {}, worker.now}).One<Refused>().error.code,
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(worker.Do(GetBlob{{"g", "b", 7}, {}, {}, worker.now}).One<Refused>().error.code,
            ErrorCode::kResourceExhausted);
}

TEST(GetTest, NobodyGetsAValueFromItself) {
  Config config = TestConfig();
  Harness worker = Getting(config);
  const Error refused = worker.Do(GetBlob{{"g", "b", 7}, {}, config.worker, absl::InfiniteFuture()})
                            .One<Refused>()
                            .error;
  EXPECT_EQ(refused.code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.text, testing::HasSubstr(config.worker));
}

// The state of an ended incarnation is of no use, so the trainer would wait for it for ever.
TEST(GetTest, Fault_W18_EndsWithTheIncarnation) {
  Harness worker;
  worker.BecomeMember();
  worker.Do(GetBlob{kKey, std::nullopt, "w-1", worker.now + absl::Seconds(60)});
  worker.Receive(Known(2));
  const Error error{ErrorCode::kEvicted, "everyone who had the state was lost"};
  EXPECT_EQ(worker.Receive(Ended{error}).One<BlobFailed>().error, error);
  // A worker that has not been a member yet may get any value.
  EXPECT_FALSE(Getting().Receive(Ended{error}).Has<BlobFailed>());
}

TEST(GetTest, EndsWithTheClient) {
  Harness worker = Getting();
  worker.Receive(Known(2));
  EXPECT_EQ(worker.Receive(Ended{{ErrorCode::kSuperseded, "newer"}}).One<BlobFailed>().error.code,
            ErrorCode::kSuperseded);
  Harness leaving = Getting();
  leaving.Do(LeaveJob{});
  EXPECT_TRUE(leaving.Receive(Ended{{ErrorCode::kOk, ""}}).Has<BlobFailed>());
}

}  // namespace
}  // namespace basin::client

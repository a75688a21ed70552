// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How far a worker may be ahead of the results of a shard, and until when.

#include "client/core/lead.h"

#include <cstdint>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "protocol/tensor.h"

namespace basin::client {
namespace {

constexpr uint32_t kLeadMost = 15;  // Chunks of a frame.
constexpr uint64_t kLeadPart = uint64_t{16} << 20;
const absl::Time kLeadBegin = absl::UnixEpoch() + absl::Hours(1);

// A link over which so many bytes per second were acknowledged.
Link KnownLink(uint64_t rate) {
  Link link;
  link.Sent(rate, 0, kLeadBegin - absl::Minutes(1));
  link.Acknowledged(rate, kLeadBegin - absl::Minutes(1) + absl::Seconds(1));
  return link;
}

bool MayLeadBy(const Lead& lead, const Link& link, absl::Time now, uint64_t part = kLeadPart) {
  return lead.MaySendAt(kChunkBytes, link, part, kLeadMost) <= now;
}

// Sends chunks at once until none may be sent; returns the bytes.
uint64_t SendAllAhead(Lead& lead, const Link& link, absl::Time now, uint64_t part = kLeadPart) {
  const uint64_t before = lead.bytes();
  while (lead.bytes() < 2 * kLeadPart && MayLeadBy(lead, link, now, part))
    lead.Sent(kChunkBytes, now);
  return lead.bytes() - before;
}

TEST(LeadTest, AWorkerIsAFewWindowsOfItsLinkAhead) {
  const Link slow = KnownLink(3 << 20);
  Lead lead;
  const uint64_t ahead = SendAllAhead(lead, slow, kLeadBegin);
  EXPECT_GE(ahead, 2 * slow.Window(kLeadMost));
  EXPECT_LE(ahead, 4 * slow.Window(kLeadMost));
  // Each result makes room for as much.
  lead.Returned(3 * kChunkBytes, kLeadBegin + absl::Seconds(1));
  EXPECT_EQ(SendAllAhead(lead, slow, kLeadBegin + absl::Seconds(1)), 3 * kChunkBytes);
}

TEST(LeadTest, NoMoreThanTheShardsPartOfTheWindow) {
  Lead lead;
  EXPECT_EQ(SendAllAhead(lead, KnownLink(3 << 20), kLeadBegin, 2 * kChunkBytes), 2 * kChunkBytes);
}

TEST(LeadTest, AFastLinkIsHeldBackByItsPartAlone) {
  Lead lead;
  EXPECT_EQ(SendAllAhead(lead, KnownLink(uint64_t{1} << 30), kLeadBegin), kLeadPart);
}

TEST(LeadTest, ResultsThatDoNotComeAreNoReasonToWait) {
  const Link slow = KnownLink(3 << 20);
  Lead lead;
  const uint64_t ahead = SendAllAhead(lead, slow, kLeadBegin);
  const absl::Time at = lead.MaySendAt(kChunkBytes, slow, kLeadPart, kLeadMost);
  EXPECT_GE(at - kLeadBegin, absl::Seconds(static_cast<double>(ahead) / slow.rate()));
  EXPECT_LT(at - kLeadBegin, absl::Seconds(3));
  EXPECT_GE(SendAllAhead(lead, slow, at), kLeadPart) << "nothing but the lane's window";
  // The first result is one to wait for again.
  lead.Returned(kChunkBytes, at + absl::Seconds(1));
  EXPECT_FALSE(MayLeadBy(lead, slow, at + absl::Seconds(1)));
}

TEST(LeadTest, ALinkThatStoodStillMakesNobodyWaitForMinutes) {
  const Link stalled = KnownLink(10 << 10);
  Lead lead;
  SendAllAhead(lead, stalled, kLeadBegin);
  EXPECT_FALSE(MayLeadBy(lead, stalled, kLeadBegin));
  EXPECT_TRUE(MayLeadBy(lead, stalled, kLeadBegin + absl::Seconds(2)));
}

TEST(LeadTest, ALeadBeginsWhenThereWasNone) {
  const Link slow = KnownLink(3 << 20);
  Lead lead;
  lead.Sent(kChunkBytes, kLeadBegin);
  lead.Returned(kChunkBytes, kLeadBegin);
  const absl::Time later = kLeadBegin + absl::Minutes(1);  // The trainer had nothing to send.
  SendAllAhead(lead, slow, later);
  EXPECT_FALSE(MayLeadBy(lead, slow, later));
}

TEST(LeadTest, OnAnUnknownLinkNothingIsHeldBack) {
  const Link unknown;
  Lead lead;
  EXPECT_GE(SendAllAhead(lead, unknown, kLeadBegin), kLeadPart);
}

}  // namespace
}  // namespace basin::client

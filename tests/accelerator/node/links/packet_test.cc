// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/links/packet.h"

#include "accelerator/node/core/settings.h"
#include "basin/v1/group.pb.h"
#include "gtest/gtest.h"

namespace basin::accelerator::node {
namespace {

GroupMember Member(LocalRank rank) { return {rank, "worker-7", 0xfedcba9876543210u}; }

TEST(PacketTest, Item3_EveryPacketIsReadAsItWasWritten) {
  const Epoch epoch = {7, 3, 99};
  const std::vector<Packet> packets = {
      Knock{Member(1)},
      Hello{Member(63), {{"BASIN_JOB", "j\xff"}, {"LOCAL_WORLD_SIZE", "64"}}, 12, true},
      Message(Propose{epoch, {Member(1), Member(0)}, std::string("\0id", 3)}),
      Message(Formed{epoch, 11, false}),
      Message(Formed{epoch, 0, true}),
      Message(Broken{epoch, "unhandled system error"}),
      Message(Broken{epoch, "no memory", true}),
      Message(Ready{epoch}),
      Message(Outcome{5, true}),
      Message(Outcome{6, false}),
      Message(Behind{8}),
      Message(GaveUp{absl::StatusCode::kDeadlineExceeded, "they disagree", true}),
      Message(Lost{63, 12}),
      Message(Leave{}),
  };
  for (const Packet& packet : packets) {
    const auto read = ReadPacket(WritePacket(packet));
    ASSERT_TRUE(read.ok()) << packet.index();
    EXPECT_TRUE(*read == packet) << packet.index();
  }
}

TEST(PacketTest, ATextThatIsLongOrNotUtf8IsSentAsFarAsItCanBe) {
  const auto read =
      ReadPacket(WritePacket(Message(Broken{{}, "\xff" + std::string(1 << 20, 'x')})));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<Broken>(std::get<Message>(*read)).why, "?" + std::string(4095, 'x'));
}

TEST(PacketTest, BadInput_BytesThatNoRankSendsAreRefused) {
  basin::v1::GroupMessage rank_too_high;
  rank_too_high.mutable_hello()->mutable_member()->set_rank(kMostRanks);
  basin::v1::GroupMessage twice;
  twice.mutable_propose()->set_unique_id("id");
  twice.mutable_propose()->add_members()->set_rank(2);
  basin::v1::GroupMessage no_id = twice;
  no_id.mutable_propose()->clear_unique_id();
  basin::v1::GroupMessage nobody = twice;
  nobody.mutable_propose()->clear_members();
  twice.mutable_propose()->add_members()->set_rank(2);
  basin::v1::GroupMessage proposer;
  proposer.mutable_ready()->mutable_epoch()->set_proposer(1u << 31);
  basin::v1::GroupMessage lost;
  lost.mutable_lost()->set_rank(1000);
  basin::v1::GroupMessage code;
  code.mutable_gave_up()->set_code(2);
  const std::string whole = WritePacket(Knock{Member(1)});
  for (const std::string& bytes :
       {std::string(), std::string("\xff\xff\xff"), std::string(kMostPacketBytes + 1, '\0'),
        whole.substr(0, whole.size() - 1), rank_too_high.SerializeAsString(),
        twice.SerializeAsString(), no_id.SerializeAsString(), nobody.SerializeAsString(),
        proposer.SerializeAsString(), lost.SerializeAsString(), code.SerializeAsString()}) {
    EXPECT_EQ(ReadPacket(bytes).status().code(), absl::StatusCode::kInvalidArgument)
        << bytes.size() << " bytes";
  }
}

}  // namespace
}  // namespace basin::accelerator::node

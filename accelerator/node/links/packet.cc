// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/links/packet.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "accelerator/node/core/settings.h"
#include "basin/v1/group.pb.h"

namespace basin::accelerator::node {
namespace {

using Wire = basin::v1::GroupMessage;

constexpr size_t kMostTextBytes = 4096;
constexpr size_t kMostIdBytes = 4096;  // The id of a worker, or of a communicator.

// UTF-8, because protobuf refuses to read other strings: a text may come from any library.
std::string Shortened(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, kMostTextBytes)) {
    out.push_back(static_cast<unsigned char>(c) < 0x80 ? c : '?');
  }
  return out;
}

// ---- writing

void Put(const Epoch& epoch, basin::v1::GroupEpoch* to) {
  to->set_number(epoch.number);
  to->set_proposer(static_cast<uint32_t>(epoch.proposer));
  to->set_nonce(epoch.nonce);
}
void Put(const GroupMember& member, basin::v1::GroupMember* to) {
  to->set_rank(static_cast<uint32_t>(member.rank));
  to->set_worker(member.worker);
  to->set_nonce(member.nonce);
}

void Put(const Knock& knock, Wire* to) { Put(knock.member, to->mutable_knock()->mutable_member()); }
void Put(const Hello& hello, Wire* to) {
  auto* const out = to->mutable_hello();
  Put(hello.member, out->mutable_member());
  for (const auto& [name, value] : hello.agreed) (*out->mutable_agreed())[name] = value;
  out->set_epoch(hello.epoch);
  out->set_grouped(hello.grouped);
}
void Put(const Propose& propose, Wire* to) {
  auto* const out = to->mutable_propose();
  Put(propose.epoch, out->mutable_epoch());
  for (const GroupMember& member : propose.members) Put(member, out->add_members());
  out->set_unique_id(propose.unique_id);
}
void Put(const Formed& formed, Wire* to) {
  auto* const out = to->mutable_formed();
  Put(formed.epoch, out->mutable_epoch());
  out->set_ended(formed.ended);
  out->set_begun(formed.begun);
}
void Put(const Broken& broken, Wire* to) {
  Put(broken.epoch, to->mutable_broken()->mutable_epoch());
  to->mutable_broken()->set_why(Shortened(broken.why));
  to->mutable_broken()->set_wanted(broken.wanted);
}
void Put(const Ready& ready, Wire* to) { Put(ready.epoch, to->mutable_ready()->mutable_epoch()); }
void Put(const Outcome& outcome, Wire* to) {
  to->mutable_outcome()->set_round(outcome.round);
  to->mutable_outcome()->set_reduced(outcome.reduced);
}
void Put(const Behind& behind, Wire* to) { to->mutable_behind()->set_number(behind.number); }
void Put(const GaveUp& gave_up, Wire* to) {
  to->mutable_gave_up()->set_why(Shortened(gave_up.why));
  to->mutable_gave_up()->set_refuses(gave_up.refuses);
  to->mutable_gave_up()->set_code(static_cast<uint32_t>(gave_up.code));
}
void Put(const Lost& lost, Wire* to) {
  to->mutable_lost()->set_rank(static_cast<uint32_t>(lost.rank));
  to->mutable_lost()->set_nonce(lost.nonce);
}
void Put(const Leave&, Wire* to) { to->mutable_leave(); }
void Put(const Message& message, Wire* to) {
  std::visit([to](const auto& one) { Put(one, to); }, message);
}

// ---- reading

// Reads the parts of one packet; `ok` is false after the first that no rank sends.
class Reader {
 public:
  bool ok() const { return ok_; }

  LocalRank Rank(uint32_t rank) {
    Require(rank < static_cast<uint32_t>(kMostRanks));
    return ok_ ? static_cast<LocalRank>(rank) : 0;
  }
  Epoch Take(const basin::v1::GroupEpoch& from) {
    return {from.number(), Rank(from.proposer()), from.nonce()};
  }
  GroupMember Take(const basin::v1::GroupMember& from) {
    Require(from.worker().size() <= kMostIdBytes);
    return {Rank(from.rank()), from.worker(), from.nonce()};
  }
  Hello Take(const Wire::Hello& from) {
    Hello hello;
    hello.member = Take(from.member());
    for (const auto& [name, value] : from.agreed()) hello.agreed.emplace(name, value);
    hello.epoch = from.epoch();
    hello.grouped = from.grouped();
    return hello;
  }
  Propose Take(const Wire::Propose& from) {
    Propose propose;
    propose.epoch = Take(from.epoch());
    Require(from.members_size() >= 1 && from.members_size() <= kMostRanks);
    Require(!from.unique_id().empty() && from.unique_id().size() <= kMostIdBytes);
    uint64_t ranks = 0;  // Each has a bit.
    static_assert(kMostRanks <= 64);
    for (const auto& member : from.members()) {
      propose.members.push_back(Take(member));
      const uint64_t bit = uint64_t{1} << propose.members.back().rank;
      Require((ranks & bit) == 0);
      ranks |= bit;
    }
    propose.unique_id = from.unique_id();
    return propose;
  }
  Formed Take(const Wire::Formed& from) { return {Take(from.epoch()), from.ended(), from.begun()}; }
  Broken Take(const Wire::Broken& from) { return {Take(from.epoch()), from.why(), from.wanted()}; }
  GaveUp Take(const Wire::GaveUp& from) {
    const auto code = static_cast<absl::StatusCode>(from.code());
    Require(code == absl::StatusCode::kInvalidArgument ||
            code == absl::StatusCode::kFailedPrecondition ||
            code == absl::StatusCode::kDeadlineExceeded || code == absl::StatusCode::kUnavailable);
    return {code, from.why(), from.refuses()};
  }
  Ready Take(const Wire::Ready& from) { return {Take(from.epoch())}; }

 private:
  void Require(bool holds) { ok_ = ok_ && holds; }

  bool ok_ = true;
};

Packet Take(const Wire& from, Reader& reader) {
  switch (from.kind_case()) {
    case Wire::kKnock:
      return Knock{reader.Take(from.knock().member())};
    case Wire::kHello:
      return reader.Take(from.hello());
    case Wire::kPropose:
      return Message(reader.Take(from.propose()));
    case Wire::kFormed:
      return Message(reader.Take(from.formed()));
    case Wire::kBroken:
      return Message(reader.Take(from.broken()));
    case Wire::kReady:
      return Message(reader.Take(from.ready()));
    case Wire::kOutcome:
      return Message(Outcome{from.outcome().round(), from.outcome().reduced()});
    case Wire::kBehind:
      return Message(Behind{from.behind().number()});
    case Wire::kGaveUp:
      return Message(reader.Take(from.gave_up()));
    case Wire::kLost:
      return Message(Lost{reader.Rank(from.lost().rank()), from.lost().nonce()});
    case Wire::kLeave:
    case Wire::KIND_NOT_SET:
      break;
  }
  return Message(Leave{});
}

}  // namespace

std::string WritePacket(const Packet& packet) {
  Wire wire;
  std::visit([&wire](const auto& one) { Put(one, &wire); }, packet);
  return wire.SerializeAsString();
}

absl::StatusOr<Packet> ReadPacket(absl::string_view bytes) {
  Wire wire;
  const bool parsed = bytes.size() <= kMostPacketBytes &&
                      wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
                      wire.kind_case() != Wire::KIND_NOT_SET;
  Reader reader;
  if (parsed) {
    Packet packet = Take(wire, reader);
    if (reader.ok()) return packet;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a packet of ", bytes.size(), " bytes is not one of a rank of this node"));
}

}  // namespace basin::accelerator::node

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/core/local_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin::accelerator::node {
namespace {

std::string Ranks(const std::vector<LocalRank>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "local rank " : "local ranks ",
                      absl::StrJoin(ranks, ", "));
}

}  // namespace

LocalGroup::LocalGroup(GroupConfig config, absl::Time now)
    : config_(std::move(config)),
      now_(now),
      gather_until_(now + config_.gather_within),
      deadline_(gather_until_) {}

Hello LocalGroup::MakeHello() const {
  return {config_.self, config_.agreed, seen_, !fresh_ || communicator_};
}

void LocalGroup::Step(const Event& event, absl::Time now, std::vector<Action>& actions) {
  if (Over()) return;
  now_ = now;
  actions_ = &actions;
  std::visit([this](const auto& one) { On(one); }, event);
  if (!Over() && config_.cannot.ok()) Consider();
  actions_ = nullptr;
}

// ---- who is here

bool LocalGroup::Alive(const GroupMember& member) const {
  if (member.rank == self()) return member.nonce == config_.self.nonce;
  const auto peer = peers_.find(member.rank);
  return peer != peers_.end() && peer->second.member.nonce == member.nonce;
}

bool LocalGroup::MayBeAlive(const GroupMember& member) const {
  if (Alive(member)) return true;
  return peers_.count(member.rank) == 0 && lost_.count(member.nonce) == 0;
}

std::optional<LocalRank> LocalGroup::Unconnected() const {
  for (const GroupMember& member : members_) {
    if (MayBeAlive(member) && !Alive(member)) return member.rank;
  }
  return std::nullopt;
}

bool LocalGroup::IsMember(LocalRank rank) const {
  return std::any_of(members_.begin(), members_.end(), [&](const GroupMember& member) {
    return member.rank == rank && Alive(member);
  });
}

bool LocalGroup::IsMember(LocalRank rank, uint64_t nonce) const {
  return std::any_of(members_.begin(), members_.end(), [&](const GroupMember& member) {
    return member.rank == rank && member.nonce == nonce;
  });
}

std::optional<LocalRank> LocalGroup::Proposer() const {
  // The members are a group of their own: a rank that joins leads when it is in it.
  std::optional<LocalRank> lowest;
  for (const GroupMember& member : members_) {
    if (MayBeAlive(member) && (!lowest || member.rank < *lowest)) lowest = member.rank;
  }
  if (lowest) return lowest;
  for (const auto& [rank, hello] : peers_) {
    if (hello.grouped) return std::nullopt;
  }
  return peers_.empty() ? self() : std::min(self(), peers_.begin()->first);
}

void LocalGroup::On(const PeerConnected& connected) {
  const Hello& hello = connected.hello;
  const GroupMember& member = hello.member;
  const auto refuse = [&](const std::string& why) {
    Act(Refuse{member.rank, member.nonce, absl::StatusCode::kInvalidArgument, why});
  };
  if (member.rank < 0 || member.rank >= config_.size || member.rank == self()) {
    refuse(
        absl::StrCat("local rank ", member.rank, " (", member.worker,
                     member.rank == self() ? ") is another process's as well" : ") is not below ",
                     member.rank == self() ? "" : absl::StrCat(config_.size)));
    return;
  }
  if (!config_.cannot.ok()) {
    ReportTo(member);
    return;
  }
  // A process that replaces another one: its connection has ended, or is about to.
  if (peers_.count(member.rank) > 0) On(PeerLost{member.rank, peers_[member.rank].member.nonce});
  if (!fresh_ && hello.agreed != config_.agreed) {
    peers_[member.rank] = hello;
    const std::string why = Disagreement();
    peers_.erase(member.rank);
    refuse(why);
    return;
  }
  if (!fresh_ && !IsMember(member.rank, member.nonce)) {
    RefuseLate(member);
    return;
  }
  peers_[member.rank] = hello;
  seen_ = std::max(seen_, hello.epoch);
  for (const Lost& lost : LostMembers()) Act(Send{member.rank, lost});
}

void LocalGroup::RefuseLate(const GroupMember& peer) {
  Act(Refuse{peer.rank, peer.nonce, absl::StatusCode::kFailedPrecondition,
             "the ranks of this node have a group already, which takes in no other one; start all "
             "of them together"});
}

void LocalGroup::ReportTo(const GroupMember& peer) {
  Act(Send{peer.rank,
           GaveUp{config_.cannot.code(),
                  absl::StrCat("local rank ", self(), " (", config_.self.worker,
                               ") cannot take part in the local group: ", config_.cannot.message()),
                  false}});
  reported_.insert(peer.rank);
  if (static_cast<int>(reported_.size()) == config_.size - 1) Fail(config_.cannot, Leave{});
}

void LocalGroup::On(const PeerLost& lost) {
  const auto peer = peers_.find(lost.rank);
  if (peer == peers_.end() || peer->second.member.nonce != lost.nonce) return;
  // The group that this rank has waited for may be lost with it, and another one is gathered.
  if (members_.empty() && peer->second.grouped) gather_until_ = now_ + config_.gather_within;
  peers_.erase(peer);
  formed_.erase(lost.rank);
  // A member that has begun after that process has ended cannot see that it is lost.
  if (IsMember(lost.rank, lost.nonce)) SendToAll(Lost{lost.rank, lost.nonce});
  Lose(lost.rank, lost.nonce);
}

void LocalGroup::From(LocalRank, const Lost& lost) {
  // A connection to it ends by itself.
  const auto peer = peers_.find(lost.rank);
  if (peer == peers_.end() || peer->second.member.nonce != lost.nonce) Lose(lost.rank, lost.nonce);
}

std::vector<Lost> LocalGroup::LostMembers() const {
  std::vector<Lost> lost;
  for (const GroupMember& member : members_) {
    if (lost_.count(member.nonce) > 0) lost.push_back({member.rank, member.nonce});
  }
  return lost;
}

void LocalGroup::Lose(LocalRank rank, uint64_t nonce) {
  lost_.insert(nonce);
  if (IsMember(rank, nonce)) EndEpoch(absl::StrCat("local rank ", rank, " was lost"));
  // It has reported nothing to this rank, and so contributes for no other one.
  if (begun_ && begun_by_.rank == rank && begun_by_.nonce == nonce) EndRound(false);
}

std::string LocalGroup::Disagreement() const {
  std::set<std::string> names;
  for (const auto& [name, value] : config_.agreed) names.insert(name);
  for (const auto& [rank, hello] : peers_) {
    for (const auto& [name, value] : hello.agreed) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto value_of = [&name](const std::map<std::string, std::string>& agreed) {
      const auto found = agreed.find(name);
      return found == agreed.end() ? std::string("not set") : found->second;
    };
    std::map<LocalRank, std::string> of_rank = {{self(), value_of(config_.agreed)}};
    for (const auto& [rank, hello] : peers_) of_rank[rank] = value_of(hello.agreed);
    std::map<std::string, std::vector<LocalRank>> by_value;
    for (const auto& [rank, value] : of_rank) by_value[value].push_back(rank);
    if (by_value.size() == 1) continue;
    std::vector<std::string> parts;
    parts.reserve(by_value.size());
    for (const auto& [value, ranks] : by_value) {
      parts.push_back(absl::StrCat(value, " (", Ranks(ranks), ")"));
    }
    return absl::StrCat("the ranks of this node disagree on ", name, ": ",
                        absl::StrJoin(parts, ", "), "; start them with the same value");
  }
  return "";
}

// ---- proposing

void LocalGroup::Consider() {
  if (phase_ == GroupPhase::kGathering) {
    Gather();
    return;
  }
  // Without a member that is alive, there would be two groups.
  if (Proposer() != self() || Unconnected()) return;
  if (phase_ == GroupPhase::kReforming) WantId();
}

void LocalGroup::Gather() {
  const std::optional<LocalRank> proposer = Proposer();
  if (!proposer) {
    deadline_ = absl::InfiniteFuture();  // A group takes as long as its round.
    return;
  }
  std::vector<LocalRank> missing;
  for (LocalRank rank = 0; rank < config_.size; ++rank) {
    if (rank != self() && peers_.count(rank) == 0) missing.push_back(rank);
  }
  if (!missing.empty() && now_ < gather_until_) {
    deadline_ = gather_until_;
    return;
  }
  const std::string disagreement = Disagreement();
  if (!disagreement.empty()) {
    Fail(absl::InvalidArgumentError(disagreement),
         GaveUp{absl::StatusCode::kInvalidArgument, disagreement, true});
  } else if (!missing.empty()) {
    const std::string text =
        absl::StrCat(Ranks(missing), missing.size() == 1 ? " has" : " have", " not come within ",
                     absl::FormatDuration(config_.gather_within), ", of the ", config_.size,
                     " of this node; start all of them, or set BASIN_LOCAL_GROUP to off");
    Fail(absl::DeadlineExceededError(text),
         GaveUp{absl::StatusCode::kDeadlineExceeded, text, false});
  } else if (*proposer == self()) {
    WantId();
  } else if (deadline_ <= gather_until_ || deadline_ == absl::InfiniteFuture()) {
    deadline_ = now_ + 2 * config_.form_within;
  }
}

void LocalGroup::WantId() {
  phase_ = GroupPhase::kMakingId;
  deadline_ = now_ + config_.form_within;
  Act(MakeUniqueId{++requests_});
}

void LocalGroup::On(const UniqueIdMade& made) {
  if (phase_ != GroupPhase::kMakingId || made.request != requests_) return;
  if (made.id.empty()) {
    OnFailure(absl::StrCat("the id of a communicator could not be made: ", made.why));
    return;
  }
  if (Proposer() != self()) {
    phase_ = members_.empty() ? GroupPhase::kGathering : GroupPhase::kReforming;
    deadline_ = now_ + 2 * config_.form_within;
    return;
  }
  Propose propose;
  propose.epoch = {seen_ + 1, self(), config_.self.nonce};
  propose.unique_id = made.id;
  propose.members.push_back(config_.self);
  for (const auto& [rank, hello] : peers_) propose.members.push_back(hello.member);
  // The order in which contributions are added.
  std::sort(propose.members.begin(), propose.members.end(),
            [](const GroupMember& a, const GroupMember& b) {
              return std::tie(a.worker, a.rank) < std::tie(b.worker, b.rank);
            });
  SendToAll(propose);
  Apply(propose);
}

void LocalGroup::From(LocalRank from, const Propose& propose) {
  seen_ = std::max(seen_, propose.epoch.number);
  if (!propose.epoch.LaterThan(epoch_)) {
    if (propose.epoch.proposer == epoch_.proposer) Act(Send{from, Behind{seen_}});
    return;
  }
  const auto own = std::find(propose.members.begin(), propose.members.end(), config_.self);
  if (own != propose.members.end()) Apply(propose);
}

void LocalGroup::From(LocalRank, const Behind& behind) {
  seen_ = std::max(seen_, behind.number);
  const bool concerns = epoch_.proposer == self() && behind.number >= epoch_.number &&
                        (phase_ == GroupPhase::kForming || phase_ == GroupPhase::kFormed);
  if (concerns) EndEpoch("an earlier process of this rank had this epoch");
}

void LocalGroup::Apply(const Propose& propose) {
  AbortIfAny("the group is formed again");
  epoch_ = propose.epoch;
  seen_ = std::max(seen_, epoch_.number);
  members_ = propose.members;
  unique_id_ = propose.unique_id;
  formed_.clear();
  for (auto& [rank, hello] : peers_) hello.grouped = hello.grouped || IsMember(rank);
  phase_ = GroupPhase::kForming;
  const bool proposes = epoch_.proposer == self();
  deadline_ = now_ + (proposes ? 1 : 2) * config_.form_within;
  communicator_ = true;
  FormCommunicator form{epoch_, members_, 0, 0, unique_id_};
  for (size_t i = 0; i < members_.size(); ++i) {
    const auto index = static_cast<int>(i);
    if (members_[i].rank == self()) form.index = index;
    if (members_[i].rank < members_[static_cast<size_t>(form.leader)].rank) form.leader = index;
  }
  Act(std::move(form));
  for (const Lost& lost : LostMembers()) SendToAll(lost);
}

// ---- forming

void LocalGroup::On(const CommunicatorFormed& formed) {
  if (formed.epoch != epoch_ || phase_ != GroupPhase::kForming) return;
  phase_ = GroupPhase::kFormed;
  ReportFormed();
}

void LocalGroup::ReportFormed() {
  const Formed report{epoch_, ended_, begun_};
  if (epoch_.proposer != self()) {
    Act(Send{epoch_.proposer, report});
    return;
  }
  formed_[self()] = report;
  BecomeReadyIfAllHave();
}

void LocalGroup::From(LocalRank from, const Formed& formed) {
  const bool expected = formed.epoch == epoch_ && epoch_.proposer == self() && IsMember(from) &&
                        (phase_ == GroupPhase::kForming || phase_ == GroupPhase::kFormed);
  if (!expected) return;
  formed_[from] = formed;
  BecomeReadyIfAllHave();
}

void LocalGroup::BecomeReadyIfAllHave() {
  if (formed_.size() != members_.size()) return;
  // The group goes on after the last round that is over for any of them. One that some have begun
  // in an earlier epoch is over as well: its leader has reported to nobody that it was reduced.
  GroupRound last = 0;
  for (const auto& [rank, formed] : formed_) {
    last = std::max(last, formed.begun ? formed.ended + 1 : formed.ended);
  }
  while (ended_ < last) Decide(false);
  for (const auto& [rank, formed] : formed_) {
    if (rank != self() && formed.ended < last) Act(Send{rank, Outcome{last, false}});
  }
  for (const GroupMember& member : members_) {
    if (member.rank != self()) Act(Send{member.rank, Ready{epoch_}});
  }
  BecomeReady();
}

void LocalGroup::From(LocalRank from, const Ready& ready) {
  if (ready.epoch != epoch_ || from != epoch_.proposer || phase_ != GroupPhase::kFormed) return;
  BecomeReady();
}

void LocalGroup::BecomeReady() {
  phase_ = GroupPhase::kReady;
  deadline_ = absl::InfiniteFuture();
  fresh_ = false;
  // A former member may have reported what becomes of a round.
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    const GroupMember& member = peer->second.member;
    const bool late = !peer->second.grouped && !IsMember(member.rank, member.nonce);
    if (late) RefuseLate(member);
    peer = late ? peers_.erase(peer) : std::next(peer);
  }
  Act(GroupReady{epoch_, members_, Leader().rank});
  AskToReduce();
}

const GroupMember& LocalGroup::Leader() const {
  return *std::min_element(
      members_.begin(), members_.end(),
      [](const GroupMember& a, const GroupMember& b) { return a.rank < b.rank; });
}

// ---- failures

void LocalGroup::AbortIfAny(const std::string& why) {
  if (communicator_) Act(AbortCommunicator{epoch_, why});
  communicator_ = false;
}

void LocalGroup::EndEpoch(const std::string& why) {
  if (Leads()) Decide(false);
  AbortIfAny(why);
  why_ = why;
  if (phase_ == GroupPhase::kGathering || phase_ == GroupPhase::kMakingId) return;
  phase_ = GroupPhase::kReforming;
  deadline_ = now_ + 2 * config_.form_within;
}

void LocalGroup::OnFailure(const std::string& why) {
  if (++attempts_ >= config_.most_attempts) {
    const std::string text = absl::StrCat("the local group failed ", attempts_,
                                          " times without a round, at last because ", why);
    Fail(absl::UnavailableError(text), GaveUp{absl::StatusCode::kUnavailable, text, false});
    return;
  }
  if (phase_ == GroupPhase::kMakingId) {
    WantId();
  } else {
    EndEpoch(why);
  }
}

void LocalGroup::On(const CommunicatorFailed& failed) {
  if (failed.epoch != epoch_ || !communicator_) return;
  const std::string why = absl::StrCat("local rank ", self(), ": ", failed.why);
  if (Proposer() == self()) {
    OnFailure(why);
    return;
  }
  EndEpoch(why);
  Act(Send{*Proposer(), Broken{failed.epoch, why}});
}

void LocalGroup::From(LocalRank from, const Broken& broken) {
  // The epoch may have ended here for another reason, which is being dealt with.
  if (broken.epoch != epoch_ || !communicator_ || !IsMember(from)) return;
  if (broken.wanted) {
    EndEpoch(broken.why);
  } else {
    OnFailure(broken.why);
  }
}

void LocalGroup::Fail(absl::Status status, const Message& farewell) {
  if (Leads()) Decide(false);
  AbortIfAny(std::string(status.message()));
  SendToAll(farewell);
  phase_ = GroupPhase::kFailed;
  deadline_ = absl::InfiniteFuture();
  Act(GroupFailed{std::move(status)});
}

void LocalGroup::From(LocalRank from, const GaveUp& gave_up) {
  // A rank that gathers the same group as this one has failed for both.
  const bool gathers = members_.empty() && !peers_[from].grouped;
  const bool concerns = gave_up.refuses ? fresh_ : IsMember(from) || gathers;
  if (begun_ && begun_by_ == peers_[from].member) EndRound(false);
  if (concerns) {
    Fail(absl::Status(gave_up.code, gave_up.why), Leave{});
  } else {
    From(from, Leave{});
  }
}

void LocalGroup::On(const Tick&) {
  if (now_ < deadline_) return;
  if (!config_.cannot.ok()) {
    Fail(config_.cannot, Leave{});
    return;
  }
  switch (phase_) {
    case GroupPhase::kMakingId:
      OnFailure("the id of a communicator was not made in time");
      return;
    case GroupPhase::kForming:
    case GroupPhase::kFormed: {
      if (epoch_.proposer != self()) break;
      std::vector<LocalRank> silent;
      for (const GroupMember& member : members_) {
        if (formed_.count(member.rank) == 0) silent.push_back(member.rank);
      }
      OnFailure(Ranks(silent) + " did not form the communicator in time");
      return;
    }
    case GroupPhase::kGathering:
      if (deadline_ <= gather_until_ || !Proposer() || Proposer() == self()) return;
      break;
    case GroupPhase::kReforming:
      break;
    default:
      return;
  }
  const bool formed = phase_ == GroupPhase::kForming || phase_ == GroupPhase::kFormed;
  // The proposer is among the members, as this rank is.
  const LocalRank proposer = formed ? epoch_.proposer : *Proposer();
  const bool proposes = proposer == self();
  const char* const what = formed     ? " has not reported that all have formed theirs"
                           : proposes ? " has not connected to this one"
                                      : " has proposed none";
  Fail(absl::DeadlineExceededError(
           absl::StrCat("no local group was formed in time: local rank ",
                        proposes ? Unconnected().value_or(proposer) : proposer, what,
                        why_.empty() ? "" : absl::StrCat(", after: ", why_))),
       Leave{});
}

// ---- rounds

void LocalGroup::On(const RoundBegun& begun) {
  if (open_ || begun.round != ended_ + 1) return;  // Otherwise it is over.
  open_ = true;
  AskToReduce();
}

void LocalGroup::AskToReduce() {
  if (phase_ != GroupPhase::kReady || !open_ || begun_) return;
  begun_ = true;
  begun_by_ = Leader();
  Act(ReduceRound{epoch_, ended_ + 1});
}

void LocalGroup::On(const RoundReduced& reduced) {
  if (Leads() && reduced.round == ended_ + 1) Decide(true);
}

void LocalGroup::On(const RoundFailed& failed) {
  if (failed.epoch != epoch_ || !communicator_) return;
  const std::string why = absl::StrCat("local rank ", self(), ": ", failed.why);
  const std::optional<LocalRank> proposer = Proposer();
  EndEpoch(why);
  if (proposer != self()) Act(Send{*proposer, Broken{failed.epoch, why, true}});
}

void LocalGroup::Decide(bool reduced) {
  for (const GroupMember& member : members_) {
    if (member.rank != self()) Act(Send{member.rank, Outcome{ended_ + 1, reduced}});
  }
  EndRound(reduced);
}

void LocalGroup::EndRound(bool reduced) {
  ++ended_;
  open_ = begun_ = false;
  if (reduced) {
    attempts_ = 0;
    why_.clear();
  }
  Act(RoundOver{ended_, reduced});
}

void LocalGroup::From(LocalRank from, const Outcome& outcome) {
  // Only the leader of a round that this rank reduces knows what has become of it.
  const bool expected =
      outcome.round == ended_ + 1 && (begun_ ? begun_by_ == peers_[from].member : IsMember(from));
  if (!expected) return;
  EndRound(outcome.reduced);
  // The epoch ends with such a round, also for a rank that has not begun it: the next round would
  // begin in an epoch that is over, and be lost as well.
  if (!outcome.reduced && phase_ == GroupPhase::kReady) EndEpoch("a round was not reduced");
}

// ---- the end

void LocalGroup::From(LocalRank from, const Leave&) {
  const auto peer = peers_.find(from);
  if (peer != peers_.end()) On(PeerLost{from, peer->second.member.nonce});
}

void LocalGroup::On(const LeaveGroup&) {
  AbortIfAny("this rank leaves");
  SendToAll(Leave{});
  phase_ = GroupPhase::kLeft;
  deadline_ = absl::InfiniteFuture();
  Act(LeftGroup{});
}

void LocalGroup::On(const MessageReceived& received) {
  if (peers_.count(received.from) == 0) return;
  std::visit([&](const auto& message) { From(received.from, message); }, received.message);
}

void LocalGroup::SendToAll(const Message& message) {
  for (const auto& [rank, hello] : peers_) Act(Send{rank, message});
}

}  // namespace basin::accelerator::node

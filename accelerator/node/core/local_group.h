// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The local group of one rank: who is in it, who leads it, when its communicator is formed, and
// what becomes of a round when something fails. Each rank of the node has one, which knows the
// others by their connections.
//
// One rank PROPOSES: of a group, the lowest of its members that is alive; before there is a group,
// the lowest of all. It proposes when every rank is here, so that a node cannot have two groups,
// and again when a member is lost or its communicator fails. A proposal is a new epoch with its
// members and the id of their communicator. Members form the communicator and report it to the
// proposer, which reports that all have: then the group is READY. The LEADER is the member with the
// lowest rank. A rank that starts when there is a group is refused: it would not know which rounds
// the others have had.
//
// The leader alone decides what becomes of a round. When it has the sums, the round is REDUCED, and
// the leader contributes for all. If the epoch ends before, because a member is lost, a
// communicator fails or a trainer gives up, every rank contributes for itself in this round, and
// the group forms again for the next one. No round is reduced twice.
//
// The leader reports to the others before it contributes, and its report is received before the
// end of its connection. So a rank whose leader is lost in a round, and has reported nothing, knows
// that nobody has contributed for it, and contributes for itself: no gradient counts twice. Those
// of ranks to which the leader has reported, and not lived to contribute for, are missing in that
// round.
//
// A rank that CANNOT take part is not a member of any group. It reports why to each other rank that
// comes, and those that gather with it have failed then, instead of waiting for it.
//
// Failure: GroupFailed ends this rank's part, with INVALID_ARGUMENT for values that the ranks do
// not agree on, DEADLINE_EXCEEDED for a rank that does not answer, UNAVAILABLE after
// `most_attempts` failures of the communicator without a reduced round between them. A round in
// which that happens may have no RoundOver; then its gradients must not be contributed.
//
// Thread contract: one thread at a time.

#ifndef BASIN_ACCELERATOR_NODE_CORE_LOCAL_GROUP_H_
#define BASIN_ACCELERATOR_NODE_CORE_LOCAL_GROUP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "accelerator/node/core/action.h"
#include "accelerator/node/core/event.h"

namespace basin::accelerator::node {

struct GroupConfig {
  GroupMember self;
  int size = 1;  // LOCAL_WORLD_SIZE.
  std::map<std::string, std::string> agreed;
  // How long the first proposal waits for ranks that are not here yet. A node with one that does
  // not come has no group.
  absl::Duration gather_within = absl::Seconds(60);
  // How long the communicator takes to form. A rank that proposes nothing is lost to the others
  // after twice this time.
  absl::Duration form_within = absl::Seconds(90);
  int most_attempts = 3;
  // Not OK: this rank cannot take part, for this reason. GroupFailed comes when it has reported to
  // all others, or after `gather_within`.
  absl::Status cannot;
};

enum class GroupPhase : uint8_t {
  kGathering,  // No proposal has come yet.
  kMakingId,   // This rank is going to propose.
  kForming,    // The communicator is being formed here,
  kFormed,     // or has been formed here and is being formed elsewhere.
  kReady,      //
  kReforming,  // The epoch has ended; another rank is going to propose.
  kFailed,     //
  kLeft,       //
};

class LocalGroup {
 public:
  LocalGroup(GroupConfig config, absl::Time now);

  void Step(const Event& event, absl::Time now, std::vector<Action>& actions);
  absl::Time NextDeadline() const { return deadline_; }

  // For a connection that begins now.
  Hello MakeHello() const;

  GroupPhase phase() const { return phase_; }
  const Epoch& epoch() const { return epoch_; }
  const std::vector<GroupMember>& members() const { return members_; }
  bool open() const { return open_; }
  bool begun() const { return begun_; }
  GroupRound ended() const { return ended_; }
  // It has been in no group that was ready.
  bool fresh() const { return fresh_; }

  auto Fields() const {
    return std::tie(phase_, peers_, lost_, seen_, epoch_, members_, unique_id_, communicator_,
                    fresh_, ended_, open_, begun_, begun_by_, reported_, formed_, attempts_, why_,
                    requests_, gather_until_, deadline_);
  }

 private:
  // One for each event.
  void On(const Tick& tick);
  void On(const PeerConnected& connected);
  void On(const PeerLost& lost);
  void On(const MessageReceived& received);
  void On(const UniqueIdMade& made);
  void On(const CommunicatorFormed& formed);
  void On(const CommunicatorFailed& failed);
  void On(const RoundBegun& begun);
  void On(const RoundReduced& reduced);
  void On(const RoundFailed& failed);
  void On(const LeaveGroup& leave);
  // One for each message.
  void From(LocalRank from, const Propose& propose);
  void From(LocalRank from, const Formed& formed);
  void From(LocalRank from, const Broken& broken);
  void From(LocalRank from, const Ready& ready);
  void From(LocalRank from, const Outcome& outcome);
  void From(LocalRank from, const Behind& behind);
  void From(LocalRank from, const GaveUp& gave_up);
  void From(LocalRank from, const Lost& lost);
  void From(LocalRank from, const Leave& leave);

  bool Over() const { return phase_ == GroupPhase::kFailed || phase_ == GroupPhase::kLeft; }
  bool Alive(const GroupMember& member) const;
  // Also if its connection to this rank has not begun yet.
  bool MayBeAlive(const GroupMember& member) const;
  // A member of the last group that is one of these.
  std::optional<LocalRank> Unconnected() const;
  bool IsMember(LocalRank rank) const;
  bool IsMember(LocalRank rank, uint64_t nonce) const;
  // REQUIRES: there are members.
  const GroupMember& Leader() const;
  // The rank that is going to propose; absent while others have a group that this rank is not in.
  std::optional<LocalRank> Proposer() const;
  LocalRank self() const { return config_.self.rank; }

  // What has to be done after each event.
  void Consider();
  void Gather();
  void WantId();
  void Apply(const Propose& propose);
  void BecomeReady();
  void AskToReduce();
  void ReportFormed();
  void BecomeReadyIfAllHave();
  // Members of the last group that are lost, which others may not be able to see.
  std::vector<Lost> LostMembers() const;
  // A process of the group is lost.
  void Lose(LocalRank rank, uint64_t nonce);
  // The leader, or whoever proposes after it, decides what becomes of the next round.
  void Decide(bool reduced);
  // The next round is over for this rank.
  void EndRound(bool reduced);
  // Whether this rank was asked to reduce the next round, and leads it.
  bool Leads() const { return begun_ && begun_by_ == config_.self; }
  // The epoch cannot go on: its communicator is aborted, and there will be another proposal.
  void EndEpoch(const std::string& why);
  // The communicator of the epoch has failed somewhere.
  void OnFailure(const std::string& why);
  void AbortIfAny(const std::string& why);
  // This rank cannot take part.
  void ReportTo(const GroupMember& peer);
  // The process has started after the group had formed.
  void RefuseLate(const GroupMember& peer);
  // `farewell` is sent to all.
  void Fail(absl::Status status, const Message& farewell);
  std::string Disagreement() const;
  void SendToAll(const Message& message);

  template <typename T>
  void Act(T action) {
    actions_->emplace_back(std::in_place_type<T>, std::move(action));
  }

  const GroupConfig config_;
  absl::Time now_;
  std::vector<Action>* actions_ = nullptr;  // Those of the Step that runs.

  GroupPhase phase_ = GroupPhase::kGathering;
  std::map<LocalRank, Hello> peers_;  // Connected; `grouped` is kept up to date.
  std::set<uint64_t> lost_;           // The nonces of processes that were lost.
  uint64_t seen_ = 0;                 // The highest number of an epoch.
  Epoch epoch_;                       // That of the last group that this rank is or was in, ...
  std::vector<GroupMember> members_;  // ... and its members.
  std::string unique_id_;
  bool communicator_ = false;  // There is one, being formed or formed.
  bool fresh_ = true;
  GroupRound ended_ = 0;  // The last round that is over.
  // For the next round:
  bool open_ = false;                   // The trainer has begun it.
  bool begun_ = false;                  // This rank was asked to reduce it, ...
  GroupMember begun_by_;                // ... under this leader.
  std::set<LocalRank> reported_;        // They know why this rank cannot take part.
  std::map<LocalRank, Formed> formed_;  // At the proposer: who has reported.
  int attempts_ = 0;                    // Failures since a round was reduced.
  std::string why_;                     // The last failure.
  uint64_t requests_ = 0;
  absl::Time gather_until_;
  absl::Time deadline_;
};

}  // namespace basin::accelerator::node

#endif  // BASIN_ACCELERATOR_NODE_CORE_LOCAL_GROUP_H_

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Everything that the core of a local group can ask for. Actions of one Step are carried out in
// order.
//
// Thread contract: plain values.

#ifndef BASIN_ACCELERATOR_NODE_CORE_ACTION_H_
#define BASIN_ACCELERATOR_NODE_CORE_ACTION_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "accelerator/node/core/event.h"

namespace basin::accelerator::node {

struct Send {
  LocalRank to = 0;
  Message message;
};
// The process at the other end does not belong to this group: send it a GaveUp that refuses it with
// this code and text, and close the connection.
struct Refuse {
  LocalRank rank = 0;
  uint64_t nonce = 0;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  std::string why;
};
// Answered by UniqueIdMade.
struct MakeUniqueId {
  uint64_t request = 0;
};
// Form the communicator of these members, of which this process has index `index`. Answered by
// CommunicatorFormed or CommunicatorFailed.
struct FormCommunicator {
  Epoch epoch;
  std::vector<GroupMember> members;
  int index = 0;
  int leader = 0;  // That of the member with the lowest rank.
  std::string unique_id;
};
// End the communicator, with the work in it. It is the one that was formed last.
struct AbortCommunicator {
  Epoch epoch;
  std::string why;
};
// The group is complete: these are its members, and the leader contributes for all of them.
struct GroupReady {
  Epoch epoch;
  std::vector<GroupMember> members;
  LocalRank leader = 0;
};
// Reduce this rank's contribution to the round. Asked for once in each round at most.
struct ReduceRound {
  Epoch epoch;
  GroupRound round = 0;
};
// The round has ended for this rank, whether or not it was asked to reduce. `reduced`: the leader
// has the sums, and contributes them for all. If not, each rank contributes for itself. It comes
// after the messages by which the leader reports to the others.
struct RoundOver {
  GroupRound round = 0;
  bool reduced = false;
};
// There is no group for this process any more: close its connections, after earlier messages.
struct GroupFailed {
  absl::Status status;
};
struct LeftGroup {};

using Action = std::variant<Send, Refuse, MakeUniqueId, FormCommunicator, AbortCommunicator,
                            GroupReady, ReduceRound, RoundOver, GroupFailed, LeftGroup>;

}  // namespace basin::accelerator::node

#endif  // BASIN_ACCELERATOR_NODE_CORE_ACTION_H_

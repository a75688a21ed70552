// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Everything that can happen to the core of a local group, and what its ranks send one another.
//
// Each two ranks of a node have a connection, which begins with the hello of both and delivers
// messages in order. It ends when one of the two does.
//
// Thread contract: plain values.

#ifndef BASIN_ACCELERATOR_NODE_CORE_EVENT_H_
#define BASIN_ACCELERATOR_NODE_CORE_EVENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "protocol/fields.h"

namespace basin::accelerator::node {

using basin::operator==;
using basin::operator!=;

using LocalRank = int;
using GroupRound = uint64_t;  // Rounds of a group, from 1.

// Which forming of the group: a later one has a higher number, and of two with one number the one
// whose proposer has the lower rank counts.
struct Epoch {
  uint64_t number = 0;
  LocalRank proposer = 0;
  uint64_t nonce = 0;  // The proposer's.

  auto Fields() const { return std::tie(number, proposer, nonce); }
  bool LaterThan(const Epoch& other) const {
    return number != other.number ? number > other.number : proposer < other.proposer;
  }
};

struct GroupMember {
  LocalRank rank = 0;
  std::string worker;  // The id of the process in its job.
  uint64_t nonce = 0;  // Random: which process has this rank.

  auto Fields() const { return std::tie(rank, worker, nonce); }
};

// ---- messages

struct Hello {
  GroupMember member;
  // Values that must be the same on every rank, by the name that a user knows.
  std::map<std::string, std::string> agreed;
  uint64_t epoch = 0;    // The highest number that it knows.
  bool grouped = false;  // It is or was in a group.

  auto Fields() const { return std::tie(member, agreed, epoch, grouped); }
};
// These are the group from now on. The members are in the byte order of their worker ids.
struct Propose {
  Epoch epoch;
  std::vector<GroupMember> members;
  std::string unique_id;

  auto Fields() const { return std::tie(epoch, members, unique_id); }
};
// To the proposer: the sender's communicator is formed.
struct Formed {
  Epoch epoch;
  GroupRound ended = 0;  // Its last round that is over.
  bool begun = false;    // It was asked to reduce the next one, in an epoch that has ended.

  auto Fields() const { return std::tie(epoch, ended, begun); }
};
// The communicator of the sender has failed. To the proposer, or whoever proposes next.
struct Broken {
  Epoch epoch;
  std::string why;
  bool wanted = false;  // It is in order, and the sender's trainer cannot go on with the round.

  auto Fields() const { return std::tie(epoch, why, wanted); }
};
// Every member has formed its communicator.
struct Ready {
  Epoch epoch;

  auto Fields() const { return std::tie(epoch); }
};
// From the leader, or whoever proposes after it: the round is over. As in RoundOver.
struct Outcome {
  GroupRound round = 0;
  bool reduced = false;

  auto Fields() const { return std::tie(round, reduced); }
};
// To a proposer whose rank had an earlier process: there was an epoch with this number already.
struct Behind {
  uint64_t number = 0;

  auto Fields() const { return std::tie(number); }
};
// The sender has given up, for a reason that concerns its group; or it refuses the receiver, which
// does not belong to its group.
struct GaveUp {
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  std::string why;
  bool refuses = false;

  auto Fields() const { return std::tie(code, why, refuses); }
};
// The process has been lost to the sender. The receiver may never have had a connection to it.
struct Lost {
  LocalRank rank = 0;
  uint64_t nonce = 0;

  auto Fields() const { return std::tie(rank, nonce); }
};
struct Leave {
  auto Fields() const { return std::tie(); }
};

using Message = std::variant<Propose, Formed, Broken, Ready, Outcome, Behind, GaveUp, Lost, Leave>;

// ---- events

struct Tick {};
// A connection is open, after the hello of its other end.
struct PeerConnected {
  Hello hello;
};
// It has ended. Nothing comes from this process any more.
struct PeerLost {
  LocalRank rank = 0;
  uint64_t nonce = 0;
};
struct MessageReceived {
  LocalRank from = 0;
  Message message;
};
// The answer to MakeUniqueId. An empty id: it failed.
struct UniqueIdMade {
  uint64_t request = 0;
  std::string id;
  std::string why;
};
// The answer to FormCommunicator, ...
struct CommunicatorFormed {
  Epoch epoch;
};
// ... or an error of a communicator, also one that was formed.
struct CommunicatorFailed {
  Epoch epoch;
  std::string why;
};
// The trainer begins a round, the one after that which was over for it last; answered by
// ReduceRound when the group is ready, or by RoundOver.
struct RoundBegun {
  GroupRound round = 0;
};
// At the leader: it has the sums of all ranks.
struct RoundReduced {
  GroupRound round = 0;
};
// The trainer cannot go on in this epoch, for a reason of its own.
struct RoundFailed {
  Epoch epoch;
  std::string why;
};
struct LeaveGroup {};

using Event =
    std::variant<Tick, PeerConnected, PeerLost, MessageReceived, UniqueIdMade, CommunicatorFormed,
                 CommunicatorFailed, RoundBegun, RoundReduced, RoundFailed, LeaveGroup>;

}  // namespace basin::accelerator::node

#endif  // BASIN_ACCELERATOR_NODE_CORE_EVENT_H_

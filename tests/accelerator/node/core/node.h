// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The ranks of a node with their connections and communicators, without processes, sockets or NCCL.
// What is on its way is delivered when the test says so: messages between two ranks in order, and
// everything else in any order.
//
// Checks after each step that the decisions of the ranks agree: no gradient counts twice.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_ACCELERATOR_NODE_CORE_NODE_H_
#define BASIN_TESTS_ACCELERATOR_NODE_CORE_NODE_H_

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "accelerator/node/core/local_group.h"
#include "gtest/gtest.h"

namespace basin::accelerator::node {

class Node {
 public:
  struct Process {
    std::unique_ptr<LocalGroup> core;
    uint64_t nonce = 0;
    std::optional<FormCommunicator> communicator;  // Being formed, or formed.
    bool formed = false;
    std::optional<ReduceRound> reduces;
    std::optional<absl::Status> failed;
    std::optional<GroupReady> ready;
    std::vector<std::string> refused;
    GroupRound asked = 0;             // The last round that it was asked to reduce.
    std::map<GroupRound, bool> over;  // Its rounds that are over: whether they were reduced.
  };

  explicit Node(int size) : size_(size), processes_(static_cast<size_t>(size)) {}

  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  std::map<std::string, std::string> agreed = {{"BASIN_JOB", "j"}};  // For what starts next.
  absl::Status cannot;                                               // For what starts next.
  int failing_forms = 0;  // Communicators that do not form.
  int failing_ids = 0;
  // The leader that has the sums next is killed after so many actions of its decision.
  std::optional<size_t> dies_after;

  Process& At(LocalRank rank) { return processes_[static_cast<size_t>(rank)]; }
  bool Alive(LocalRank rank) { return At(rank).core != nullptr; }
  bool Over(LocalRank rank) {
    const GroupPhase phase = At(rank).core->phase();
    return phase == GroupPhase::kFailed || phase == GroupPhase::kLeft;
  }

  void Start(LocalRank rank) {
    Process& process = At(rank);
    process = Process();
    process.nonce = ++nonces_;
    GroupConfig config;
    // The order of the ids is not that of the ranks.
    config.self = {rank, absl::StrCat("worker-", (rank * 7 + 3) % 10), process.nonce};
    config.size = size_;
    config.agreed = agreed;
    config.cannot = cannot;
    process.core = std::make_unique<LocalGroup>(config, now);
    for (LocalRank other = 0; other < size_; ++other) {
      if (other != rank && Alive(other) && !Over(other)) Connect(rank, other);
    }
  }

  void Kill(LocalRank rank) {
    Disconnect(rank);
    At(rank) = Process();
  }

  void Give(LocalRank rank, const Event& event) {
    std::vector<Action> actions;
    Process& process = At(rank);
    const LocalGroup before = *process.core;
    process.core->Step(event, now, actions);
    const bool decides = std::holds_alternative<RoundReduced>(event) && !actions.empty();
    const std::optional<size_t> left = decides ? std::exchange(dies_after, {}) : std::nullopt;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (left == i) {
        Kill(rank);
        return;
      }
      std::visit([&](const auto& one) { Carry(rank, one); }, actions[i]);
    }
    Check(rank, before);
  }
  void BeginRound(LocalRank rank) { Give(rank, RoundBegun{At(rank).core->ended() + 1}); }

  std::string Describe(LocalRank rank) {
    const LocalGroup& core = *At(rank).core;
    std::string text = absl::StrCat("phase ", static_cast<int>(core.phase()), ", epoch ",
                                    core.epoch().number, " of ", core.epoch().proposer, ", ended ",
                                    core.ended(), core.open() ? ", open" : "", ", members");
    for (const GroupMember& member : core.members()) {
      absl::StrAppend(&text, " ", member.rank, "#", member.nonce);
    }
    return absl::StrCat(text, ", is #", At(rank).nonce);
  }

  // ---- what can happen next; each returns whether it has happened

  bool Deliver(LocalRank from, LocalRank to) {
    const auto link = links_.find({from, to});
    if (link == links_.end() || link->second.empty() || !Alive(to)) return false;
    const Event event = link->second.front();
    link->second.pop_front();
    Give(to, event);
    return true;
  }

  bool DeliverId(LocalRank rank) {
    if (!Alive(rank) || ids_[rank].empty()) return false;
    const MakeUniqueId make = ids_[rank].front();
    ids_[rank].pop_front();
    const bool fails = failing_ids > 0 && failing_ids-- > 0;
    Give(rank, UniqueIdMade{make.request, fails ? "" : absl::StrCat("id ", ++made_), "no network"});
    return true;
  }

  // The communicator of a rank, when all its members form theirs.
  bool Form(LocalRank rank) {
    if (!Alive(rank)) return false;
    Process& process = At(rank);
    if (!process.communicator || process.formed) return false;
    const FormCommunicator form = *process.communicator;
    if (failing_forms > 0) {
      --failing_forms;
      Give(rank, CommunicatorFailed{form.epoch, "unhandled system error"});
      return true;
    }
    for (const GroupMember& member : form.members) {
      const Process& other = At(member.rank);
      const bool same = Alive(member.rank) && other.nonce == member.nonce && other.communicator &&
                        other.communicator->unique_id == form.unique_id;
      if (!same) return false;
    }
    process.formed = true;
    Give(rank, CommunicatorFormed{form.epoch});
    return true;
  }

  // The leader has the sums when all members of its epoch reduce the round.
  bool EndRound(LocalRank rank) {
    if (!Alive(rank) || !At(rank).reduces || !At(rank).communicator) return false;
    const ReduceRound reduce = *At(rank).reduces;
    if (At(rank).ready->leader != rank) return false;
    for (const GroupMember& member : At(rank).communicator->members) {
      const Process& other = At(member.rank);
      const bool reduces = Alive(member.rank) && other.nonce == member.nonce && other.reduces &&
                           other.reduces->epoch == reduce.epoch &&
                           other.reduces->round == reduce.round;
      if (!reduces) return false;
    }
    At(rank).reduces.reset();
    Give(rank, RoundReduced{reduce.round});
    return true;
  }

  // The trainer gives its round up.
  bool GiveUp(LocalRank rank) {
    if (!Alive(rank) || !At(rank).reduces || !At(rank).communicator) return false;
    Give(rank, RoundFailed{At(rank).reduces->epoch, "no memory"});
    return true;
  }

  bool FailCommunicator(LocalRank rank) {
    if (!Alive(rank) || !At(rank).formed) return false;
    Give(rank, CommunicatorFailed{At(rank).communicator->epoch, "remote error"});
    return true;
  }

  // Everything that can happen without time or faults. Returns whether anything did.
  bool Quiesce(const std::function<uint32_t(uint32_t)>& pick, bool rounds) {
    bool any = false;
    for (int step = 0; step < 20000; ++step) {
      if (!Something(pick, rounds)) return any;
      any = true;
    }
    ADD_FAILURE() << "it does not come to rest";
    return any;
  }
  bool Quiesce() {
    return Quiesce([](uint32_t) { return 0u; }, true);
  }

  // Moves the time to the next deadline of a rank. Returns whether there is one.
  bool NextDeadline() {
    absl::Time next = absl::InfiniteFuture();
    for (LocalRank rank = 0; rank < size_; ++rank) {
      if (Alive(rank) && !Over(rank)) next = std::min(next, At(rank).core->NextDeadline());
    }
    if (next == absl::InfiniteFuture()) return false;
    now = std::max(now, next);
    for (LocalRank rank = 0; rank < size_; ++rank) {
      if (Alive(rank) && !Over(rank)) Give(rank, Tick{});
    }
    return true;
  }

  bool Something(const std::function<uint32_t(uint32_t)>& pick, bool rounds) {
    const uint32_t n = static_cast<uint32_t>(size_);
    const uint32_t choices = n * (n + 3);
    const uint32_t first = pick(choices);
    for (uint32_t i = 0; i < choices; ++i) {
      const uint32_t choice = (first + i) % choices;
      const auto a = static_cast<LocalRank>(choice % n);
      const auto b = static_cast<LocalRank>(choice / n);
      const bool did = b < size_        ? Deliver(a, b)
                       : b == size_     ? DeliverId(a)
                       : b == size_ + 1 ? Form(a)
                                        : rounds && EndRound(a);
      if (did) return true;
    }
    return false;
  }

 private:
  using Link = std::pair<LocalRank, LocalRank>;  // From, to.

  void Connect(LocalRank a, LocalRank b) {
    connected_.insert({std::min(a, b), std::max(a, b)});
    // What is still on its way from the process before comes first.
    links_[{a, b}].push_back(PeerConnected{At(a).core->MakeHello()});
    links_[{b, a}].clear();
    links_[{b, a}].push_back(PeerConnected{At(b).core->MakeHello()});
  }

  void Disconnect(LocalRank rank) {
    for (LocalRank other = 0; other < size_; ++other) {
      if (connected_.erase({std::min(rank, other), std::max(rank, other)}) == 0) continue;
      links_[{rank, other}].push_back(PeerLost{rank, At(rank).nonce});
      links_.erase({other, rank});
    }
  }

  void Carry(LocalRank from, const Send& send) {
    if (Alive(send.to)) links_[{from, send.to}].push_back(MessageReceived{from, send.message});
  }
  void Carry(LocalRank rank, const Refuse& refuse) {
    At(rank).refused.push_back(refuse.why);
    if (Alive(refuse.rank) && At(refuse.rank).nonce == refuse.nonce) {
      links_[{rank, refuse.rank}].push_back(
          MessageReceived{rank, GaveUp{refuse.code, refuse.why, true}});
    }
  }
  void Carry(LocalRank rank, const MakeUniqueId& make) { ids_[rank].push_back(make); }
  void Carry(LocalRank rank, const FormCommunicator& form) {
    Process& process = At(rank);
    EXPECT_FALSE(process.communicator) << "the one before was not aborted";
    EXPECT_EQ(form.members[static_cast<size_t>(form.index)].nonce, process.nonce);
    process.communicator = form;
    process.formed = false;
    // One epoch is one group with one id.
    const auto key = std::tuple(form.epoch.number, form.epoch.proposer, form.epoch.nonce);
    const auto known = groups_.emplace(key, form).first->second;
    EXPECT_EQ(known.members, form.members);
    EXPECT_EQ(known.unique_id, form.unique_id);
    EXPECT_EQ(known.leader, form.leader);
    EXPECT_TRUE(std::is_sorted(form.members.begin(), form.members.end(),
                               [](const auto& a, const auto& b) { return a.worker < b.worker; }));
  }
  void Carry(LocalRank rank, const AbortCommunicator& abort) {
    Process& process = At(rank);
    ASSERT_TRUE(process.communicator);
    EXPECT_EQ(process.communicator->epoch, abort.epoch);
    process.communicator.reset();
    process.formed = false;
    process.reduces.reset();
  }
  void Carry(LocalRank rank, const GroupReady& ready) {
    Process& process = At(rank);
    EXPECT_TRUE(process.formed);
    process.ready = ready;
    for (const GroupMember& member : ready.members) EXPECT_LE(ready.leader, member.rank);
  }
  void Carry(LocalRank rank, const ReduceRound& reduce) {
    EXPECT_TRUE(At(rank).formed);
    EXPECT_GT(reduce.round, At(rank).asked) << "it is not reduced again";
    At(rank).asked = reduce.round;
    At(rank).reduces = reduce;
  }
  void Carry(LocalRank rank, const RoundOver& over) {
    Process& process = At(rank);
    EXPECT_TRUE(process.over.emplace(over.round, over.reduced).second);
    process.reduces.reset();
    if (!over.reduced) {
      EXPECT_EQ(carried_.count({process.nonce, over.round}), 0u)
          << "rank " << rank << " contributes to round " << over.round << " twice";
      alone_.insert({process.nonce, over.round});
      return;
    }
    EXPECT_EQ(process.asked, over.round);
    if (process.ready->leader != rank) return;
    // It contributes for all.
    for (const GroupMember& member : process.ready->members) {
      EXPECT_TRUE(carried_.insert({member.nonce, over.round}).second);
      EXPECT_EQ(alone_.count({member.nonce, over.round}), 0u) << "rank " << member.rank;
    }
  }
  void Carry(LocalRank rank, const GroupFailed& failed) {
    At(rank).failed = failed.status;
    Disconnect(rank);
  }
  void Carry(LocalRank rank, const LeftGroup&) { Disconnect(rank); }

  void Check(LocalRank rank, const LocalGroup& before) {
    const LocalGroup& core = *At(rank).core;
    EXPECT_EQ(core.ended(), At(rank).over.size()) << "rank " << rank << " misses a round";
    EXPECT_FALSE(before.epoch().LaterThan(core.epoch())) << "rank " << rank << " goes back";
    EXPECT_EQ(core.phase() == GroupPhase::kReady && !At(rank).communicator, false);
  }

  const int size_;
  std::vector<Process> processes_;
  uint64_t nonces_ = 0;
  int made_ = 0;
  std::set<Link> connected_;
  std::map<Link, std::deque<Event>> links_;
  std::map<LocalRank, std::deque<MakeUniqueId>> ids_;
  std::map<std::tuple<uint64_t, LocalRank, uint64_t>, FormCommunicator> groups_;
  // The ranks that have contributed to a round, through a leader or for themselves.
  std::set<std::pair<uint64_t, GroupRound>> carried_;
  std::set<std::pair<uint64_t, GroupRound>> alone_;
};

}  // namespace basin::accelerator::node

#endif  // BASIN_TESTS_ACCELERATOR_NODE_CORE_NODE_H_

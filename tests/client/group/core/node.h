// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The ranks of a node with their connections and communicators, without processes, sockets or NCCL.
// What is on its way is delivered when the test says so: messages between two ranks in order, and
// everything else in any order.
//
// Checks after each step that the decisions of the ranks agree.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_CLIENT_GROUP_CORE_NODE_H_
#define BASIN_TESTS_CLIENT_GROUP_CORE_NODE_H_

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
#include "client/group/core/local_group.h"
#include "gtest/gtest.h"

namespace basin::client::group {

class Node {
 public:
  struct Process {
    std::unique_ptr<LocalGroup> core;
    uint64_t nonce = 0;
    std::optional<FormCommunicator> communicator;  // Being formed, or formed.
    bool formed = false;
    std::optional<ReduceRound> reduces;
    std::optional<TakeRound> takes;
    std::optional<SupplyRound> supplies;
    std::optional<Epoch> taken_in;  // The last epoch in which it takes a result.
    std::optional<absl::Status> failed;
    std::optional<GroupReady> ready;
    std::vector<std::string> refused;
    std::map<GroupRound, std::string> results;  // Which reduction its result of a round is from.
    bool holds(GroupRound round) const { return core->ended() == round; }
  };

  explicit Node(int size) : size_(size), processes_(static_cast<size_t>(size)) {}

  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  std::map<std::string, std::string> agreed = {{"BASIN_JOB", "j"}};  // For what starts next.
  absl::Status cannot;                                               // For what starts next.
  int failing_forms = 0;  // Communicators that do not form.
  int failing_ids = 0;

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
    for (const Action& action : actions) {
      std::visit([&](const auto& one) { Carry(rank, one); }, action);
    }
    Check(rank, before, std::holds_alternative<RoundEnded>(event));
  }

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

  // The end of a round at a rank, when all members of its epoch reduce it, or one supplies it.
  bool EndRound(LocalRank rank) {
    if (!Alive(rank)) return false;
    Process& process = At(rank);
    if (process.takes) {
      const TakeRound take = *process.takes;
      const Process& supplier = At(take.supplier);
      // Every member takes part in a broadcast.
      for (const GroupMember& member : process.communicator->members) {
        const Process& other = At(member.rank);
        const bool takes = other.taken_in == take.epoch;
        const bool supplies = other.supplies && other.supplies->epoch == take.epoch &&
                              other.supplies->round == take.round &&
                              other.supplies->supplier == take.supplier;
        if (!Alive(member.rank) || !(takes || supplies)) return false;
      }
      EXPECT_GE(supplier.core->ended(), take.round);
      const auto supplied_result = supplier.results.find(take.round);
      if (supplied_result == supplier.results.end()) {
        ADD_FAILURE() << "rank " << take.supplier << " has no result of round " << take.round;
        return false;
      }
      process.results[take.round] = supplied_result->second;
      process.takes.reset();
      EXPECT_EQ(take.declined, IsDeclined(supplied_result->second));
      Give(rank, RoundEnded{take.epoch, take.round, take.declined});
      return true;
    }
    if (!process.reduces) return false;
    const ReduceRound reduce = *process.reduces;
    const auto key = std::tuple(reduce.epoch.number, reduce.epoch.nonce, reduce.round);
    if (reduced_.count(key) == 0) {
      for (const GroupMember& member : process.communicator->members) {
        const Process& other = At(member.rank);
        const bool reduces = Alive(member.rank) && other.reduces &&
                             other.reduces->epoch == reduce.epoch &&
                             other.reduces->round == reduce.round;
        if (!reduces) return false;
        // Nobody has the result of another reduction of this round.
        EXPECT_LT(other.core->ended(), reduce.round) << "rank " << member.rank;
      }
      reduced_.insert(key);
    }
    // In every third reduction a rank has no memory, which is the same for all.
    const bool declined = (reduce.epoch.number + reduce.round) % 3 == 0;
    const std::string result = absl::StrCat("epoch ", reduce.epoch.number, " of ",
                                            reduce.epoch.nonce, declined ? kDeclined : "");
    process.results[reduce.round] = result;
    process.reduces.reset();
    Give(rank, RoundEnded{reduce.epoch, reduce.round, declined});
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
  static constexpr char kDeclined[] = ", declined";
  static bool IsDeclined(const std::string& result) {
    return result.size() > sizeof(kDeclined) &&
           result.compare(result.size() + 1 - sizeof(kDeclined), std::string::npos, kDeclined) == 0;
  }

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
    EXPECT_EQ(form.members[static_cast<size_t>(form.place)].nonce, process.nonce);
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
    process.takes.reset();
    process.supplies.reset();
  }
  void Carry(LocalRank rank, const GroupReady& ready) {
    Process& process = At(rank);
    EXPECT_TRUE(process.formed);
    process.ready = ready;
    for (const GroupMember& member : ready.members) EXPECT_LE(ready.leader, member.rank);
  }
  void Carry(LocalRank rank, const ReduceRound& reduce) {
    EXPECT_TRUE(At(rank).formed);
    At(rank).reduces = reduce;
  }
  void Carry(LocalRank rank, const SupplyRound& supply) {
    if (supply.supplier == rank) {
      EXPECT_EQ(At(rank).core->ended(), supply.round) << "it is not kept";
    }
    At(rank).supplies = supply;
  }
  void Carry(LocalRank rank, const TakeRound& take) {
    At(rank).takes = take;
    At(rank).taken_in = take.epoch;
  }
  void Carry(LocalRank rank, const GroupFailed& failed) {
    At(rank).failed = failed.status;
    Disconnect(rank);
  }
  void Carry(LocalRank rank, const LeftGroup&) { Disconnect(rank); }

  void Check(LocalRank rank, const LocalGroup& before, bool ended) {
    const LocalGroup& core = *At(rank).core;
    // A rank of a group misses no round; a newcomer begins where the others are.
    if (!ended && !before.fresh() && before.holds()) {
      EXPECT_EQ(core.ended(), before.ended()) << "rank " << rank;
    }
    if (core.phase() == GroupPhase::kReady) CheckResults(rank);
    CheckSupply(rank);
    EXPECT_FALSE(before.epoch().LaterThan(core.epoch())) << "rank " << rank << " goes back";
    EXPECT_EQ(core.phase() == GroupPhase::kReady && !At(rank).communicator, false);
  }

  // Ranks that are in one group have the same result of each round.
  void CheckResults(LocalRank rank) {
    for (const GroupMember& member : At(rank).core->members()) {
      const Process& other = At(member.rank);
      if (!Alive(member.rank) || other.nonce != member.nonce) continue;
      if (other.core->phase() != GroupPhase::kReady) continue;
      if (other.core->epoch() != At(rank).core->epoch()) continue;
      for (const auto& [round, result] : At(rank).results) {
        const auto theirs = other.results.find(round);
        if (theirs == other.results.end()) continue;
        EXPECT_EQ(theirs->second, result)
            << "round " << round << " of ranks " << rank << " and " << member.rank;
      }
    }
  }

  // When all members are ready, a result that is supplied is taken by one of them: a broadcast that
  // nobody takes would not end.
  void CheckSupply(LocalRank rank) {
    if (!At(rank).communicator) return;
    bool supplied = false;
    bool taken = false;
    for (const GroupMember& member : At(rank).communicator->members) {
      const Process& other = At(member.rank);
      if (!Alive(member.rank) || other.core->phase() != GroupPhase::kReady) return;
      if (other.core->epoch() != At(rank).core->epoch()) return;
      supplied = supplied || other.supplies;
      taken = taken || other.taken_in == other.core->epoch();
    }
    EXPECT_EQ(supplied, taken);
  }

  const int size_;
  std::vector<Process> processes_;
  uint64_t nonces_ = 0;
  int made_ = 0;
  std::set<Link> connected_;
  std::map<Link, std::deque<Event>> links_;
  std::map<LocalRank, std::deque<MakeUniqueId>> ids_;
  std::map<std::tuple<uint64_t, LocalRank, uint64_t>, FormCommunicator> groups_;
  std::set<std::tuple<uint64_t, uint64_t, GroupRound>> reduced_;
};

}  // namespace basin::client::group

#endif  // BASIN_TESTS_CLIENT_GROUP_CORE_NODE_H_

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The hellos that a job holds until it has recovered: the latest one of each worker, with all its
// history, and the sessions that wait for an answer. A hello outlives its session, because its
// content stays true.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_HELD_HELLOS_H_
#define BASIN_AGGREGATOR_CORE_HELD_HELLOS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "aggregator/core/event.h"
#include "aggregator/core/footprint.h"
#include "aggregator/core/memory.h"
#include "aggregator/core/recovery.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class HeldHellos {
 public:
  const std::map<WorkerId, Hello>& hellos() const { return hellos_; }
  const Hello* Find(const WorkerId& worker) const {
    const auto it = hellos_.find(worker);
    return it == hellos_.end() ? nullptr : &it->second;
  }
  // The open sessions.
  const std::map<WorkerId, SessionId>& waiting() const { return waiting_; }
  std::optional<SessionId> SessionOf(const WorkerId& worker) const {
    const auto it = waiting_.find(worker);
    if (it == waiting_.end()) return std::nullopt;
    return it->second;
  }
  // The list of the newest generation that any worker remembers.
  const Membership& newest() const { return newest_; }
  uint64_t bytes() const { return bytes_; }           // The bytes charged to the memory budget.
  size_t refused() const { return refused_.size(); }  // Workers whose hello found no memory.

  // Returns whether the process whose hello is held keeps its place: it remembers and is connected,
  // and `hello` comes from another process of the same worker, without memory. The job can admit
  // that process once it has recovered.
  bool KeepsOut(const Hello& hello) const {
    const Hello* held = Find(hello.worker);
    return held != nullptr && held->nonce != hello.nonce && HasHistory(*held) &&
           !HasHistory(hello) && waiting_.count(hello.worker) > 0;
  }

  // Holds the hello in place of the worker's earlier one. Returns whether there was memory for it;
  // if not, the earlier one stays, without a session.
  bool Hold(MemoryBudget& memory, SessionId session, const Hello& hello) {
    waiting_.erase(hello.worker);
    const Hello* before = Find(hello.worker);
    const uint64_t freed = before == nullptr ? 0 : Footprint::Of(*before);
    const uint64_t need = Footprint::Of(hello);
    if (need > freed + memory.free()) {
      memory.shortage |= memory.cached > 0;  // The client retries.
      refused_.insert(hello.worker);
      return false;
    }
    Charge(memory, need, freed);
    const bool replaces = before != nullptr;
    hellos_[hello.worker] = hello;
    Share(hellos_[hello.worker].membership);
    waiting_[hello.worker] = session;
    refused_.erase(hello.worker);
    if (replaces) {
      newest_ = Membership{};
      for (const auto& [id, held] : hellos_) NoteNewest(held.membership);
    } else {
      NoteNewest(hello.membership);
    }
    return true;
  }

  void LoseSession(SessionId session) {
    for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
      if (it->second != session) continue;
      waiting_.erase(it);
      return;
    }
  }
  void LoseSessionOf(const WorkerId& worker) { waiting_.erase(worker); }
  std::map<WorkerId, SessionId> TakeSessions() { return std::exchange(waiting_, {}); }

  // Returns the hellos and stops holding them; the sessions still wait.
  std::map<WorkerId, Hello> TakeHellos(MemoryBudget& memory) {
    Charge(memory, 0, bytes_);
    refused_.clear();
    newest_ = Membership{};
    return std::exchange(hellos_, {});
  }

  auto Fields() const { return std::tie(hellos_, waiting_, newest_, bytes_, refused_); }

 private:
  void NoteNewest(const Membership& membership) {
    if (newest_.generation < membership.generation) newest_ = membership;
  }

  // Most workers remember the same list, so they share one copy.
  void Share(Membership& membership) const {
    if (membership == newest_) membership = newest_;
  }

  void Charge(MemoryBudget& memory, uint64_t more, uint64_t less) {
    memory.reserved += more;
    memory.reserved -= less;
    bytes_ += more;
    bytes_ -= less;
  }

  std::map<WorkerId, Hello> hellos_;
  std::map<WorkerId, SessionId> waiting_;
  Membership newest_;
  uint64_t bytes_ = 0;
  std::set<WorkerId> refused_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_HELD_HELLOS_H_

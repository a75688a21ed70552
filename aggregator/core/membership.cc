// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/membership.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {

MemberList ListOf(std::vector<WorkerId> ids, const Workers& workers) {
  std::vector<uint32_t> ranks;
  ranks.reserve(ids.size());
  for (const WorkerId& id : ids) ranks.push_back(workers[*workers.Find(id)].ranks);
  return MemberList::WithRanks(std::move(ids), std::move(ranks));
}

std::vector<Slot> Candidates(const Workers& workers) {
  std::vector<Slot> ready;
  for (Slot slot = 0; slot < workers.size(); ++slot) {
    const Worker& worker = workers[slot];
    if (worker.draining || worker.finishing) continue;
    if (worker.state == WorkerState::kCandidate || worker.state == WorkerState::kSpare) {
      ready.push_back(slot);
    }
  }
  std::sort(ready.begin(), ready.end(),
            [&workers](Slot a, Slot b) { return workers[a].ready_order < workers[b].ready_order; });
  return ready;
}

MemberList ChooseMembers(const std::vector<WorkerId>& current, const Workers& workers,
                         const NextMembers& which) {
  std::vector<WorkerId> next;
  std::vector<uint32_t> ranks;
  const auto add = [&](const Worker& worker) {
    next.push_back(worker.id);
    ranks.push_back(worker.ranks);
  };
  for (const WorkerId& id : current) {
    const std::optional<Slot> slot = workers.Find(id);
    if (!slot.has_value()) continue;
    const Worker& worker = workers[*slot];
    const bool stays = which.keep_all || (!worker.draining && !worker.finishing);
    if (IsMember(worker) && stays) add(worker);
  }
  if (which.admit) {
    for (const Slot slot : Candidates(workers)) {
      if (next.size() >= which.most) break;
      add(workers[slot]);
    }
  }
  return MemberList::WithRanks(std::move(next), std::move(ranks));
}

MemberList FirstMembers(const std::vector<Slot>& ready, const Workers& workers, uint32_t most) {
  std::vector<WorkerId> members;
  for (const Slot slot : ready) {
    if (members.size() < most) members.push_back(workers[slot].id);
  }
  std::sort(members.begin(), members.end());
  return ListOf(std::move(members), workers);
}

bool AnyRevived(const std::vector<WorkerId>& next, const Workers& workers) {
  return std::any_of(next.begin(), next.end(), [&workers](const WorkerId& id) {
    return !IsMember(workers[*workers.Find(id)]);
  });
}

std::optional<WorkerId> ChooseFirstDonor(const std::vector<WorkerId>& next,
                                         const Workers& workers) {
  if (next.empty()) return std::nullopt;
  bool same = true;
  const Worker* donor = &workers[*workers.Find(next.front())];
  for (const WorkerId& id : next) {
    const Worker& worker = workers[*workers.Find(id)];
    same &= worker.step_label == donor->step_label && worker.state_hash == donor->state_hash;
    const auto further = [](const Worker& a, const Worker& b) {
      return a.step_label != b.step_label ? a.step_label > b.step_label : a.id < b.id;
    };
    if (further(worker, *donor)) donor = &worker;
  }
  if (same) return std::nullopt;
  return donor->id;
}

std::optional<WorkerId> ChooseDonor(const std::vector<WorkerId>& current,
                                    const std::vector<WorkerId>& next, const Workers& workers,
                                    bool trained) {
  const Worker* donor = nullptr;
  int best_rank = -1;
  for (const WorkerId& id : current) {
    const std::optional<Slot> slot = workers.Find(id);
    if (!slot.has_value()) continue;
    const Worker& worker = workers[*slot];
    if (!IsMember(worker) || !worker.holds_state) continue;
    // A member that still takes part comes first, because one that has finished may lack the last
    // rounds. Then comes a connected one, then one that stays.
    const bool stays = std::find(next.begin(), next.end(), id) != next.end();
    const int rank = 4 * !worker.finishing + 2 * worker.connected() + stays;
    if (rank <= best_rank) continue;
    donor = &worker;
    best_rank = rank;
  }
  if (donor == nullptr) return std::nullopt;
  const bool lacking = std::any_of(next.begin(), next.end(), [&](const WorkerId& id) {
    const Worker& worker = workers[*workers.Find(id)];
    if (IsMember(worker)) return !worker.holds_state;
    return trained || worker.step_label != donor->step_label ||
           worker.state_hash != donor->state_hash;
  });
  if (!lacking) return std::nullopt;
  return donor->id;
}

bool DonorServes(const std::optional<WorkerId>& donor, const Workers& workers) {
  const std::optional<Slot> slot = donor.has_value() ? workers.Find(*donor) : std::nullopt;
  return slot.has_value() && workers[*slot].state != WorkerState::kLost &&
         workers[*slot].holds_state;
}

bool NobodyGoesOn(const Workers& workers) {
  for (Slot slot = 0; slot < workers.size(); ++slot) {
    if (IsMember(workers[slot]) && !workers[slot].finishing) return false;
  }
  return workers.Count(WorkerState::kMember) > 0;
}

bool AnyMemberHoldsState(const Workers& workers) {
  for (Slot slot = 0; slot < workers.size(); ++slot) {
    if (IsMember(workers[slot]) && workers[slot].holds_state) return true;
  }
  return false;
}

bool AnyMemberLacksState(const Workers& workers) {
  for (Slot slot = 0; slot < workers.size(); ++slot) {
    if (IsMember(workers[slot]) && !workers[slot].holds_state) return true;
  }
  return false;
}

}  // namespace basin::aggregator

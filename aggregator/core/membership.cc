// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/membership.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace basin::aggregator {
namespace {

bool IsReady(const Worker& worker) {
  if (worker.draining || worker.finishing) return false;
  return worker.state == WorkerState::kCandidate || worker.state == WorkerState::kSpare;
}

bool JoinsWithGroup(const Worker& worker) {
  return !worker.group.name.empty() && !worker.joins_alone;
}

// Gives `add` the candidates for which there is room beside `taken` members.
template <typename Add>
void AddCandidates(const Workers& workers, size_t taken, uint32_t most, Add add) {
  for (const std::vector<Slot>& party : CandidatesOf(workers).parties) {
    if (taken + party.size() > most) continue;
    taken += party.size();
    for (const Slot slot : party) add(workers[slot]);
  }
}

}  // namespace

MemberList ListOf(std::vector<WorkerId> ids, const Workers& workers) {
  std::vector<uint32_t> ranks;
  ranks.reserve(ids.size());
  for (const WorkerId& id : ids) ranks.push_back(workers[*workers.Find(id)].ranks);
  return MemberList::WithRanks(std::move(ids), std::move(ranks));
}

Candidates CandidatesOf(const Workers& workers) {
  std::vector<Slot> ready;
  std::map<std::string, uint32_t> here;  // The workers of each group that are ready, or were.
  for (Slot slot = 0; slot < workers.size(); ++slot) {
    const Worker& worker = workers[slot];
    if (IsReady(worker)) ready.push_back(slot);
    const bool absent =
        worker.state == WorkerState::kAdmitted || worker.state == WorkerState::kLost;
    if (!absent && !worker.group.name.empty()) ++here[worker.group.name];
  }
  std::sort(ready.begin(), ready.end(),
            [&workers](Slot a, Slot b) { return workers[a].ready_order < workers[b].ready_order; });
  Candidates candidates;
  std::map<std::string, size_t> party_of;
  for (const Slot slot : ready) {
    const Worker& worker = workers[slot];
    if (!JoinsWithGroup(worker)) {
      candidates.parties.push_back({slot});
    } else if (here[worker.group.name] < worker.group.size) {
      candidates.waiting.push_back(slot);
    } else {
      const auto [party, first] = party_of.emplace(worker.group.name, candidates.parties.size());
      if (first) candidates.parties.emplace_back();
      candidates.parties[party->second].push_back(slot);
    }
  }
  return candidates;
}

absl::Time GroupDue(const Workers& workers, absl::Duration timeout) {
  absl::Time due = absl::InfiniteFuture();
  // Few jobs have groups, and this is asked after every event.
  bool any = false;
  for (Slot slot = 0; slot < workers.size() && !any; ++slot) {
    any = IsReady(workers[slot]) && JoinsWithGroup(workers[slot]);
  }
  if (!any) return due;
  for (const Slot slot : CandidatesOf(workers).waiting) {
    due = std::min(due, workers[slot].ready_since + timeout);
  }
  return due;
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
    AddCandidates(workers, next.size(), which.most, add);
  }
  return MemberList::WithRanks(std::move(next), std::move(ranks));
}

MemberList FirstMembers(const Workers& workers, uint32_t most) {
  std::vector<WorkerId> members;
  AddCandidates(workers, 0, most, [&](const Worker& worker) { members.push_back(worker.id); });
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

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The members of a generation in rank order, with the number of trainers that each stands for: the
// ranks of a member follow those of the members before it. Copies share the list, because in a job
// of thousands every worker receives the ids of all the others.
//
// Thread contract: a plain value; copies may be used by several threads.

#ifndef BASIN_PROTOCOL_MEMBER_LIST_H_
#define BASIN_PROTOCOL_MEMBER_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "protocol/ids.h"

namespace basin {

class MemberList {
 public:
  using value_type = WorkerId;
  using const_iterator = std::vector<WorkerId>::const_iterator;

  MemberList() = default;
  // Each member is one trainer.
  // NOLINTNEXTLINE(google-explicit-constructor)
  MemberList(std::vector<WorkerId> ids) : MemberList(List{std::move(ids), {}}) {}
  // `ranks` has the number of trainers of each member, or is empty if each is one. This is no
  // constructor, because two lists in braces would also be a list of two ids: a string can be made
  // of {"a", "b"}, and of {3, 2}.
  static MemberList WithRanks(std::vector<WorkerId> ids, std::vector<uint32_t> ranks) {
    // Equal lists must be equal in every bit.
    const bool single = std::all_of(ranks.begin(), ranks.end(), [](uint32_t n) { return n == 1; });
    if (single) ranks.clear();
    return MemberList(List{std::move(ids), std::move(ranks)});
  }

  const std::vector<WorkerId>& ids() const { return list().ids; }
  // By position; empty if each member is one trainer.
  const std::vector<uint32_t>& ranks() const { return list().ranks; }
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator const std::vector<WorkerId>&() const { return ids(); }

  size_t size() const { return ids().size(); }
  bool empty() const { return list_ == nullptr; }
  const WorkerId& operator[](size_t position) const { return ids()[position]; }
  const WorkerId& front() const { return ids().front(); }
  const_iterator begin() const { return ids().begin(); }
  const_iterator end() const { return ids().end(); }

  // ---- trainers
  // REQUIRES: position < size().
  uint32_t RanksOf(size_t position) const { return ranks().empty() ? 1 : ranks()[position]; }
  // All of the job; their ranks are the numbers below this one.
  uint32_t trainers() const { return FirstRank(size()); }
  // The first rank of the member at the position. REQUIRES: position <= size().
  uint32_t FirstRank(size_t position) const {
    if (ranks().empty()) return static_cast<uint32_t>(position);
    return std::accumulate(ranks().begin(), ranks().begin() + static_cast<ptrdiff_t>(position),
                           uint32_t{0});
  }
  // The position of the member that has the rank.
  std::optional<size_t> PositionOf(uint32_t rank) const {
    for (size_t i = 0; i < size(); ++i) {
      if (rank < RanksOf(i)) return i;
      rank -= RanksOf(i);
    }
    return std::nullopt;
  }

  friend bool operator==(const MemberList& a, const MemberList& b) {
    return a.list_ == b.list_ || (a.ids() == b.ids() && a.ranks() == b.ranks());
  }
  friend bool operator!=(const MemberList& a, const MemberList& b) { return !(a == b); }

  auto Fields() const { return std::tie(ids(), ranks()); }

 private:
  struct List {
    std::vector<WorkerId> ids;
    std::vector<uint32_t> ranks;
  };
  explicit MemberList(List list) {
    if (!list.ids.empty()) list_ = std::make_shared<const List>(std::move(list));
  }
  const List& list() const {
    static const List kNone;
    return list_ == nullptr ? kNone : *list_;
  }

  std::shared_ptr<const List> list_;  // Null if there are no members.
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_MEMBER_LIST_H_

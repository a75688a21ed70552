// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The members of a generation in rank order: the position is the rank. Copies share the ids,
// because in a job of thousands every worker receives the ids of all the others.
//
// Thread contract: a plain value; copies may be used by several threads.

#ifndef BASIN_PROTOCOL_MEMBER_LIST_H_
#define BASIN_PROTOCOL_MEMBER_LIST_H_

#include <cstddef>
#include <initializer_list>
#include <memory>
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
  // NOLINTNEXTLINE(google-explicit-constructor)
  MemberList(std::vector<WorkerId> ids)
      : ids_(ids.empty() ? nullptr
                         : std::make_shared<const std::vector<WorkerId>>(std::move(ids))) {}
  MemberList(std::initializer_list<WorkerId> ids) : MemberList(std::vector<WorkerId>(ids)) {}

  const std::vector<WorkerId>& ids() const {
    static const std::vector<WorkerId> kNone;
    return ids_ == nullptr ? kNone : *ids_;
  }
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator const std::vector<WorkerId>&() const { return ids(); }

  size_t size() const { return ids().size(); }
  bool empty() const { return ids_ == nullptr; }
  const WorkerId& operator[](size_t rank) const { return ids()[rank]; }
  const WorkerId& front() const { return ids().front(); }
  const_iterator begin() const { return ids().begin(); }
  const_iterator end() const { return ids().end(); }

  friend bool operator==(const MemberList& a, const MemberList& b) {
    return a.ids_ == b.ids_ || a.ids() == b.ids();
  }
  friend bool operator!=(const MemberList& a, const MemberList& b) { return !(a == b); }

  auto Fields() const { return std::tie(ids()); }

 private:
  std::shared_ptr<const std::vector<WorkerId>> ids_;  // Null if there are none.
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_MEMBER_LIST_H_

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/supplies.h"

#include <algorithm>
#include <iterator>

namespace basin::aggregator {

bool Supplies::SomethingIsLost(const Roster& roster) const {
  const auto lacks = [this](const RoundMember& member) {
    return std::any_of(wanted_.begin(), wanted_.end(), [&member](const auto& entry) {
      return entry.second.by.count(member.slot) > 0;
    });
  };
  if (after_loss_ && std::all_of(roster.begin(), roster.end(), [&](const RoundMember& member) {
        return !member.there() || (!member.holds && lacks(member));
      })) {
    return true;
  }
  return std::any_of(wanted_.begin(), wanted_.end(), [&roster](const auto& entry) {
    const std::set<Slot>& by = entry.second.by;
    return std::all_of(roster.begin(), roster.end(), [&by](const RoundMember& member) {
      return !member.there() || by.count(member.slot) > 0;
    });
  });
}

void Supplies::Want(uint32_t flat, Slot by) {
  Wanted& wanted = wanted_[flat];
  wanted.by.insert(by);
  if (wanted.relayed) wanted.asked = wanted.relayed = false;
}

bool Supplies::Got(uint32_t flat, Slot by) {
  const auto wanted = wanted_.find(flat);
  if (wanted == wanted_.end()) return false;
  const bool did = wanted->second.by.erase(by) > 0;
  if (wanted->second.by.empty()) wanted_.erase(wanted);
  return did;
}

std::vector<uint32_t> Supplies::Ask(Slot supplier) {
  const bool another = supplier_ != supplier;
  supplier_ = supplier;
  std::vector<uint32_t> asked;
  for (auto& [flat, wanted] : wanted_) {
    if (wanted.asked && !another) continue;
    wanted.asked = true;
    asked.push_back(flat);
  }
  return asked;
}

void Supplies::Relay(uint32_t flat, std::set<Slot>& to) {
  const auto wanted = wanted_.find(flat);
  if (wanted == wanted_.end()) return;
  wanted->second.relayed = true;
  to.insert(wanted->second.by.begin(), wanted->second.by.end());
}

void Supplies::LoseRelayed() {
  after_loss_ = true;
  for (auto& [flat, wanted] : wanted_) wanted.asked = wanted.relayed = false;
}

void Supplies::Forget(Slot slot) {
  for (auto it = wanted_.begin(); it != wanted_.end();) {
    it->second.by.erase(slot);
    it = it->second.by.empty() ? wanted_.erase(it) : std::next(it);
  }
}

void Supplies::ForgetSupplier(Slot slot) {
  if (supplier_ == slot) supplier_.reset();
}

void Supplies::Clear() {
  wanted_.clear();
  supplier_.reset();
  after_loss_ = false;
}

}  // namespace basin::aggregator

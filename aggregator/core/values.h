// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The broadcast mailbox of a job: who can serve which value, and who waits for it.
//
// A broadcast is a copy of bits from one holder, never a sum. Nobody waits for anybody but the
// holder of the value asked for. A value is (lane, tensor, version); a holder that announces a
// newer version no longer serves the older one. Two holders can stand in for each other when the
// digests they announced are equal, so a receiver never mixes two values.
//
// Thread contract: a plain value; the methods append actions and have no other effect.

#ifndef BASIN_AGGREGATOR_CORE_VALUES_H_
#define BASIN_AGGREGATOR_CORE_VALUES_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/config.h"
#include "aggregator/core/workers.h"
#include "proto/vocabulary/messages.h"

namespace basin::aggregator {

// What the mailbox may see of its surroundings during one Step.
struct ValueScope {
  absl::Time now;
  const Config& config;
  std::vector<Action>& actions;
  JobId job;
  const JobName& job_name;
  const Workers& workers;
};

class Values {
 public:
  void Announce(const ValueScope& scope, Slot slot, const basin::Announce& announce);
  void Get(const ValueScope& scope, Slot slot, const basin::Get& get);
  void Received(const ValueScope& scope, Slot slot, const ValueReceived& received);

  // The worker is lost (or has a new session): what it was asked for is asked of another, what it
  // asked for is forgotten.
  void Lose(const ValueScope& scope, Slot slot);
  void ForgetRequests(Slot slot);
  // The worker is back on a new session; what it holds is asked of it again.
  void Resume(const ValueScope& scope, Slot slot);

  void CheckDeadlines(const ValueScope& scope);
  absl::Time NextDeadline() const;
  void Shift(absl::Duration gap);
  void Clear() { entries_.clear(); }

  auto Fields() const { return std::tie(entries_); }

 private:
  using Key = std::tuple<std::string, std::string, uint64_t>;

  struct Holding {
    TensorSpec spec;
    Digest digest = 0;
    auto Fields() const { return std::tie(spec, digest); }
  };
  // A worker that waits: for the value to be announced (count 0), or for chunks of it.
  struct Request {
    Slot slot = 0;
    std::optional<TensorSpec> expected;
    std::optional<WorkerId> source;
    uint32_t first = 0;
    uint32_t count = 0;
    std::optional<Slot> asked;     // The holder that was asked for the chunks.
    std::optional<Digest> digest;  // What the requester was told the value is.
    absl::Time deadline = absl::InfiniteFuture();
    auto Fields() const {
      return std::tie(slot, expected, source, first, count, asked, digest, deadline);
    }
  };
  struct Entry {
    std::map<WorkerId, std::pair<Slot, Holding>> holders;  // The lowest id is asked first.
    std::vector<Request> requests;
    std::map<Slot, Digest> told;  // Which of the announced values each receiver was told.
    bool unused() const { return holders.empty() && requests.empty(); }
    auto Fields() const { return std::tie(holders, requests, told); }
  };

  // Tries to move a request on. Returns whether it is done with.
  bool Serve(const ValueScope& scope, const Key& key, Entry& entry, Request& request);
  void ServeAll(const ValueScope& scope, const Key& key, Entry& entry);
  void AskOthers(const ValueScope& scope, const Key& key, Entry& entry, Slot slot,
                 const std::string& why);
  void Fail(const ValueScope& scope, const Key& key, const Request& request, ErrorCode code,
            const std::string& text);

  std::map<Key, Entry> entries_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_VALUES_H_

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The broadcast mailbox of a job: which workers can serve which value, and which wait for it.
//
// A broadcast is a copy of bits from one holder, never a sum. A worker waits only for the holder of
// the value that it asked for. A value is (lane, tensor, version); a holder that announces a newer
// version no longer serves the older one. Two holders can stand in for each other when the digests
// they announced are equal, so a receiver never mixes two values.
//
// Chunks that pass by are kept while the memory budget has room for the whole value, and later
// requests are served from here: a holder sends a value once, however many ask for it. What is kept
// may be dropped at any time. It is dropped when a lane needs the memory, when a receiver asks
// again for chunks that it was sent from here (they were lost or are wrong), and when no worker
// holds the value and none that knows of it wants it. Then a holder is asked again.
//
// Thread contract: a plain value; the methods append actions and have no other effect.

#ifndef BASIN_AGGREGATOR_CORE_VALUES_H_
#define BASIN_AGGREGATOR_CORE_VALUES_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/config.h"
#include "aggregator/core/memory.h"
#include "aggregator/core/workers.h"
#include "protocol/bitmap.h"
#include "protocol/messages.h"

namespace basin::aggregator {

// What the mailbox sees of its job during one Step.
struct ValueScope {
  absl::Time now;
  const Config& config;
  MemoryBudget& memory;
  std::vector<Action>& actions;
  JobId job;
  const JobName& job_name;
  const Workers& workers;
  const std::string pause;  // Why the job is paused; empty when it is not.
};

class Values {
 public:
  void Announce(const ValueScope& scope, Slot slot, const basin::Announce& announce);
  void Get(const ValueScope& scope, Slot slot, const basin::Get& get);
  void Received(const ValueScope& scope, Slot slot, const ValueReceived& received);

  // The worker is lost (or has a new session): requests that were passed to it go to another
  // holder, and its own requests are forgotten.
  void Lose(const ValueScope& scope, Slot slot);
  void ForgetRequests(const ValueScope& scope, Slot slot);
  // The worker is back on a new session; requests for its values are passed to it again.
  void Resume(const ValueScope& scope, Slot slot);

  // Whether a worker waits for a value, or for chunks of one.
  bool AnybodyWaits() const { return !deadlines_.empty(); }
  void CheckDeadlines(const ValueScope& scope);
  absl::Time NextDeadline() const {
    return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first.first;
  }

  // Gives the memory of kept chunks back.
  void DropCached(const ValueScope& scope);
  void Clear(const ValueScope& scope);

  auto Fields() const {
    return std::tie(entries_, uses_, next_use_, deadlines_, waiting_, next_request_);
  }

 private:
  using Key = std::tuple<std::string, std::string, uint64_t>;

  struct Holding {
    TensorSpec spec;
    Digest digest = 0;
    auto Fields() const { return std::tie(spec, digest); }
  };
  // A worker that waits: for the value to be announced (count 0), or for chunks of it.
  struct Request {
    uint64_t number = 0;  // Among those that wait.
    Slot slot = 0;
    std::optional<TensorSpec> expected;
    std::optional<WorkerId> source;
    uint32_t first = 0;
    uint32_t count = 0;
    std::optional<Slot> asked;       // The holder that was asked for the chunks.
    std::optional<WorkerId> silent;  // Was asked, and did not send them.
    std::optional<Digest> digest;    // The value's, as sent to the requester.
    absl::Time deadline = absl::InfiniteFuture();
    auto Fields() const {
      return std::tie(number, slot, expected, source, first, count, asked, silent, digest,
                      deadline);
    }
  };
  // The digest that a receiver was sent for the value, and how much of the value it was sent from
  // here.
  struct Told {
    Digest digest = 0;
    uint64_t sent = 0;  // Chunks below this one.
    auto Fields() const { return std::tie(digest, sent); }
  };
  // Chunks of a value that the runner keeps. The whole value is charged to the budget.
  struct Cached {
    Holding value;
    Bitmap chunks;
    uint64_t bytes = 0;
    uint64_t use = 0;  // Its place in uses_.
    auto Fields() const { return std::tie(value, chunks, bytes, use); }
  };
  struct Entry {
    std::map<WorkerId, std::pair<Slot, Holding>> holders;  // The lowest id is asked first.
    std::vector<Request> requests;
    std::map<Slot, Told> told;  // The announced value that each receiver knows.
    std::optional<Cached> cached;
    bool unused() const { return holders.empty() && requests.empty() && !cached.has_value(); }
    auto Fields() const { return std::tie(holders, requests, told, cached); }
  };

  // Adds a request to the entry and to the indexes of waiting requests; removes one from the
  // indexes.
  void Keep(const Key& key, Entry& entry, Request request);
  void Forget(const Request& request);
  template <typename F>
  void ForgetIf(Entry& entry, F&& done);

  // Tries to move a request on. Returns whether it is done.
  bool Serve(const ValueScope& scope, const Key& key, Entry& entry, Request& request);
  bool FailIfSourceLeft(const ValueScope& scope, const Key& key, const Request& request);
  void ServeAll(const ValueScope& scope, const Key& key, Entry& entry);
  void AskOthers(const ValueScope& scope, const Key& key, Entry& entry, Slot slot,
                 const std::string& why);
  void Fail(const ValueScope& scope, const Key& key, const Request& request, ErrorCode code,
            const std::string& text);

  // Sends what is kept of the front of a request, and takes it off the request.
  void ServeCached(const ValueScope& scope, const Key& key, Entry& entry, Request& request);
  // Whether to keep chunks of this value that pass by.
  bool MayCache(const ValueScope& scope, Entry& entry, const Holding& value);
  void Use(const Key& key, Cached& cached);
  void Drop(const ValueScope& scope, const Key& key, Entry& entry);
  void DropUnneeded(const ValueScope& scope, const Key& key, Entry& entry);

  std::map<Key, Entry> entries_;
  std::map<uint64_t, Key> uses_;  // What is kept; the one that was used longest ago comes first.
  uint64_t next_use_ = 0;

  // The requests that wait, by deadline and number, and how many each worker has.
  std::map<std::pair<absl::Time, uint64_t>, Key> deadlines_;
  std::map<Slot, uint32_t> waiting_;
  uint64_t next_request_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_VALUES_H_

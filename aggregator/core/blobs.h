// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The broadcast mailbox of a job: which workers can serve which blob, and which workers wait for
// it.
//
// A broadcast copies the bits of one holder and never sums. A worker waits only for a holder of the
// blob that it requested. The key of a blob is (lane, tensor, version); a holder that announces a
// newer version no longer serves the older one. Holders that announced equal digests can replace
// each other, so a receiver never mixes two blobs.
//
// The aggregator keeps the chunks that pass through it while the memory budget has room for the
// whole blob, and serves later requests from them. A holder then sends a blob once, however many
// workers request it. Kept chunks are dropped when a lane or another blob needs the memory, when a
// receiver requests chunks again that it was sent from here (they were lost or are wrong), and when
// no worker holds the blob and no receiver has its digest. After that, the aggregator asks a
// holder again.
//
// Thread contract: a plain value; the methods append actions and have no other effect.

#ifndef BASIN_AGGREGATOR_CORE_BLOBS_H_
#define BASIN_AGGREGATOR_CORE_BLOBS_H_

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

// The mailbox sees this of its job during one Step.
struct BlobScope {
  absl::Time now;
  const Config& config;
  MemoryBudget& memory;
  std::vector<Action>& actions;
  JobId job;
  const JobName& job_name;
  const Workers& workers;
  const std::string pause;  // Why the job is paused; empty when it is not.
};

class Blobs {
 public:
  void Announce(const BlobScope& scope, Slot slot, const basin::Announce& announce);
  void Get(const BlobScope& scope, Slot slot, const basin::Get& get);
  void Received(const BlobScope& scope, Slot slot, const BlobReceived& received);

  // Lose: the worker is lost, so requests that were passed to it go to another holder. Both methods
  // forget the worker's own requests; ForgetRequests alone is for a session that has ended.
  void Lose(const BlobScope& scope, Slot slot);
  void ForgetRequests(const BlobScope& scope, Slot slot);
  // The worker is back on a new session, so requests for its blobs are passed to it again.
  void Resume(const BlobScope& scope, Slot slot);

  // Returns whether a worker waits for a blob, or for chunks of one.
  bool AnybodyWaits() const { return !deadlines_.empty(); }
  void CheckDeadlines(const BlobScope& scope);
  absl::Time NextDeadline() const {
    return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first.first;
  }

  // Releases the memory of the kept chunks.
  void DropCached(const BlobScope& scope);
  void Clear(const BlobScope& scope);

  // What is charged for them: kept chunks, and what is known.
  uint64_t cached_bytes() const;
  uint64_t reserved_bytes() const;

  auto Fields() const {
    return std::tie(entries_, uses_, next_use_, deadlines_, waiting_, next_request_, weight_);
  }

 private:
  using Key = std::tuple<std::string, std::string, uint64_t>;
  static BlobKey NameOf(const Key& key) {
    return {std::get<0>(key), std::get<1>(key), std::get<2>(key)};
  }

  struct Holding {
    TensorSpec spec;
    Digest digest = 0;
    auto Fields() const { return std::tie(spec, digest); }
  };
  // A worker waits for an announcement of the blob (count 0) or for chunks of it.
  struct Request {
    uint64_t number = 0;  // Unique among the waiting requests.
    Slot slot = 0;
    std::optional<TensorSpec> expected;
    std::optional<WorkerId> source;
    uint32_t first = 0;
    uint32_t count = 0;
    std::optional<Slot> asked;       // The holder that was asked for the chunks.
    std::optional<WorkerId> silent;  // The holder that was asked earlier and did not send them.
    std::optional<Digest> digest;    // The digest of the blob that was sent to the requester.
    absl::Time deadline = absl::InfiniteFuture();
    auto Fields() const {
      return std::tie(number, slot, expected, source, first, count, asked, silent, digest,
                      deadline);
    }
  };
  // The digest that a receiver was sent, and how far it was sent the blob from the kept chunks.
  struct Known {
    Digest digest = 0;
    uint64_t sent = 0;  // The end of the last range that was sent.
    auto Fields() const { return std::tie(digest, sent); }
  };
  // The chunks of a blob that the runner keeps. The budget is charged for the whole blob.
  struct Cached {
    Holding value;
    Bitmap chunks;
    uint64_t bytes = 0;
    uint64_t use = 0;  // Its key in uses_.
    auto Fields() const { return std::tie(value, chunks, bytes, use); }
  };
  struct Entry {
    std::map<WorkerId, std::pair<Slot, Holding>> holders;  // The lowest id is asked first.
    std::vector<Request> requests;
    std::map<Slot, Known> known;  // The announced blob that each receiver knows.
    std::optional<Cached> cached;
    uint64_t weight = 0;  // As it was counted last; see Weigh.
    bool unused() const { return holders.empty() && requests.empty() && !cached.has_value(); }
    auto Fields() const { return std::tie(holders, requests, known, cached, weight); }
  };
  using Entries = std::map<Key, Entry>;

  // What is known of blobs takes memory, too: names, holders, receivers and requests. It is
  // counted when a message has changed it, and charged in whole pieces, so that blobs which come
  // and go do not change what is free.
  static uint64_t WeightOf(const Key& key, const Entry& entry);
  void Weigh(const BlobScope& scope, const Key& key, Entry& entry);
  // Returns whether there is memory for one more blob.
  static bool HasRoomFor(const BlobScope& scope, const Key& key);
  Entries::iterator Erase(const BlobScope& scope, Entries::iterator entry);
  void Charge(const BlobScope& scope, uint64_t before, uint64_t after);

  // Keep adds a request to the entry and to the indexes of waiting requests. Forget removes it from
  // the indexes only.
  void Keep(const Key& key, Entry& entry, Request request);
  void Forget(const Request& request);
  template <typename F>
  void ForgetIf(Entry& entry, F&& done);

  // Tries to serve a request. Returns whether the request has ended.
  bool Serve(const BlobScope& scope, const Key& key, Entry& entry, Request& request);
  bool FailIfSourceLeft(const BlobScope& scope, const Key& key, const Request& request);
  void ServeAll(const BlobScope& scope, const Key& key, Entry& entry);
  void AskOthers(const BlobScope& scope, const Key& key, Entry& entry, Slot slot,
                 const std::string& why);
  void Fail(const BlobScope& scope, const Key& key, const Request& request, ErrorCode code,
            const std::string& text);

  // Sends the kept chunks at the front of a request, and shortens the request by them.
  void ServeCached(const BlobScope& scope, const Key& key, Entry& entry, Request& request);
  // Returns whether to keep the chunks of this blob that pass through.
  bool MayCache(const BlobScope& scope, Entry& entry, const Holding& value);
  void Use(const Key& key, Cached& cached);
  void Drop(const BlobScope& scope, const Key& key, Entry& entry);
  void DropUnneeded(const BlobScope& scope, const Key& key, Entry& entry);

  Entries entries_;
  uint64_t weight_ = 0;           // The sum of those of the entries.
  std::map<uint64_t, Key> uses_;  // The kept blobs, the least recently used first.
  uint64_t next_use_ = 0;

  // The waiting requests by deadline and number, and how many each worker has.
  std::map<std::pair<absl::Time, uint64_t>, Key> deadlines_;
  std::map<Slot, uint32_t> waiting_;
  uint64_t next_request_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_BLOBS_H_

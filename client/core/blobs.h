// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Blobs: those this worker can serve, and those it fetches.
//
// A fetch first requests the description of the blob (a Get of no chunks, answered by BlobKnown
// as soon as a worker has announced it), then its chunks, a window at a time. Missing chunks are
// requested again. If the digest does not match, the whole blob is fetched once more, then the
// fetch fails. The aggregator detects a lost sender and chooses another.
//
//   from      when                                               to        what is sent
//   --------  -------------------------------------------------  --------  ---------------------
//   (none)    GetBlob                                            kAsking   Get (no chunks)
//   kAsking   BlobKnown                                          kQueued
//   kQueued   fewer than max_fetches are fetching                kFetching Get (chunks)
//   kFetching chunks                                             kFetching KeepBlob, Get (more)
//   kFetching the last chunk, digest right                       (none)    BlobReady
//   kFetching BlobKnown with another digest                      kFetching from the beginning
//   any       GetFailed, deadline, wrong spec, digest wrong twice (none)   BlobFailed
//   any       a new session                                      kAsking   Get (no chunks)
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_BLOBS_H_
#define BASIN_CLIENT_CORE_BLOBS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/time/time.h"
#include "client/core/streams.h"
#include "protocol/intervals.h"

namespace basin::client {

struct BlobKeyLess {
  bool operator()(const BlobKey& a, const BlobKey& b) const { return a.Fields() < b.Fields(); }
};

class Blobs {
 public:
  // ---- the trainer's side; an error that is not kOk refuses the call, and nothing has changed
  Error Announce(const Scope& scope, const AnnounceBlob& announce);
  Error Get(const Scope& scope, const GetBlob& get);
  // Sends nothing: a receiver whose request is not answered requests the blob from another worker.
  void StopServing(const std::string& lane, const std::string& tensor);
  void FailAll(const Scope& scope, const Error& error);

  // ---- the aggregator's side
  void OnKnown(const Scope& scope, const BlobKnown& known);
  void OnFailed(const Scope& scope, const GetFailed& failed);
  void OnChunks(const Scope& scope, const BlobReceived& received);
  void OnAsk(const Scope& scope, const Ask& ask) const;

  void EndIncarnation();
  void EndSession();
  void StartSession(const Scope& scope);  // Announces and asks again.
  void Tick(const Scope& scope);
  // At or before the next thing that Tick has to do.
  absl::Time NextDeadline() const { return wake_; }

  size_t announced() const { return announced_.size(); }
  size_t fetching() const { return fetches_.size(); }

  auto Fields() const { return std::tie(announced_, fetches_, queue_, active_, wake_); }

 private:
  struct Announced {
    uint64_t version = 0;
    TensorSpec spec;
    Digest digest = 0;
    bool of_earlier_life = false;  // A lower version may follow: another lineage starts from 0.
    auto Fields() const { return std::tie(version, spec, digest, of_earlier_life); }
  };
  enum class Phase : uint8_t { kAsking = 0, kQueued = 1, kFetching = 2 };
  struct Fetch {
    std::optional<TensorSpec> expected;
    std::optional<WorkerId> root;
    absl::Time deadline;
    Phase phase = Phase::kAsking;
    std::optional<BlobKnown> known;  // Also of an earlier session.
    IntervalSet held;                // Chunks.
    Digest digest = 0;               // The digest of the held chunks.
    uint64_t asked = 0;              // Chunks before it were asked for in this session.
    absl::Time progress;             // When chunks last came or were asked for.
    bool refetched = false;
    auto Fields() const {
      return std::tie(expected, root, deadline, phase, known, held, digest, asked, progress,
                      refetched);
    }
  };
  using Fetches = std::map<BlobKey, Fetch, BlobKeyLess>;

  void AskWhat(const Scope& scope, const BlobKey& key, const Fetch& fetch) const;
  void AskChunks(const Scope& scope, const BlobKey& key, const Fetch& fetch, Interval chunks) const;
  void Requeue(const BlobKey& key, Fetch& fetch);
  void Restart(Fetch& fetch);
  void StartQueued(const Scope& scope);
  // Asks for more when half of the window is free; completes when nothing is missing.
  void Advance(const Scope& scope, Fetches::iterator it);
  void End(const Scope& scope, Fetches::iterator it, Action outcome);
  void Fail(const Scope& scope, Fetches::iterator it, ErrorCode code, const std::string& why);

  std::map<std::pair<std::string, std::string>, Announced> announced_;  // By lane and tensor.
  Fetches fetches_;
  std::deque<BlobKey> queue_;  // The fetches that are kQueued.
  uint32_t active_ = 0;        // Fetches that are kFetching.
  absl::Time wake_ = absl::InfiniteFuture();
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_BLOBS_H_

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/blobs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/core/layout.h"

namespace basin::client {
namespace {

std::string Describe(const BlobKey& key) {
  return absl::StrCat("tensor ", key.tensor, " (lane ", key.lane, ", version ", key.version, ")");
}

uint32_t Chunks(const TensorSpec& spec) { return ChunkCount(*TensorBytes(spec)); }

}  // namespace

Error Blobs::Announce(const Scope& scope, const AnnounceBlob& announce) {
  const auto name = std::make_pair(announce.key.lane, announce.key.tensor);
  const auto it = announced_.find(name);
  if (!HasUsableSize(announce.spec)) {
    return {ErrorCode::kInvalidArgument,
            absl::StrCat("Cannot announce ", Describe(announce.key), ": ",
                         DescribeSpec(announce.spec), " has no usable size.")};
  }
  const bool current = it != announced_.end() && !it->second.of_earlier_life;
  if (current && it->second.version > announce.key.version) {
    return {ErrorCode::kFailedPrecondition,
            absl::StrCat("Cannot announce ", Describe(announce.key), ": version ",
                         it->second.version, " has already been announced.")};
  }
  if (it == announced_.end() && announced_.size() >= scope.config.max_values) {
    return {ErrorCode::kResourceExhausted,
            absl::StrCat("Cannot announce ", Describe(announce.key), ": ", announced_.size(),
                         " values are announced, which is the limit.")};
  }
  announced_[name] = {announce.key.version, announce.spec, announce.digest};
  if (scope.welcomed) {
    scope.Send(basin::Announce{announce.key, announce.spec, announce.digest});
  }
  return {};
}

void Blobs::EndIncarnation() {
  for (auto& [name, value] : announced_) value.of_earlier_life = true;
}

void Blobs::StopServing(const std::string& lane, const std::string& tensor) {
  announced_.erase({lane, tensor});
}

Error Blobs::Get(const Scope& scope, const GetBlob& get) {
  if (get.source == scope.config.worker) {
    return {ErrorCode::kFailedPrecondition,
            absl::StrCat("Cannot get ", Describe(get.key), " from worker ", *get.source,
                         ": that is this worker. It has the value already; use it.")};
  }
  if (fetches_.count(get.key) > 0) {
    return {ErrorCode::kFailedPrecondition,
            absl::StrCat("Already getting ", Describe(get.key), "; wait for it.")};
  }
  if (fetches_.size() >= scope.config.max_values) {
    return {ErrorCode::kResourceExhausted,
            absl::StrCat("Cannot get ", Describe(get.key), ": ", fetches_.size(),
                         " values are being fetched, which is the limit.")};
  }
  Fetch fetch;
  fetch.expected = get.expected;
  fetch.root = get.source;
  fetch.deadline = get.deadline;
  fetch.progress = scope.now;
  wake_ = std::min(wake_, fetch.deadline);
  AskWhat(scope, get.key, fetch);
  fetches_.emplace(get.key, std::move(fetch));
  return {};
}

void Blobs::AskWhat(const Scope& scope, const BlobKey& key, const Fetch& fetch) const {
  if (!scope.welcomed) return;
  scope.Send(basin::Get{key, fetch.expected, fetch.root, 0, 0, fetch.deadline - scope.now});
}

void Blobs::AskChunks(const Scope& scope, const BlobKey& key, const Fetch& fetch,
                      Interval chunks) const {
  scope.Send(basin::Get{key, fetch.expected, fetch.root, static_cast<uint32_t>(chunks.begin),
                        static_cast<uint32_t>(chunks.size()), fetch.deadline - scope.now});
}

void Blobs::OnKnown(const Scope& scope, const BlobKnown& known) {
  const auto it = fetches_.find(known.key);
  if (it == fetches_.end()) return;
  Fetch& fetch = it->second;
  if (fetch.expected.has_value() && *fetch.expected != known.spec) {
    Fail(scope, it, ErrorCode::kMismatch,
         absl::StrCat("worker ", known.source, " has it as ", DescribeSpec(known.spec), ", but ",
                      DescribeSpec(*fetch.expected),
                      " was expected. Build the same model on both workers."));
    return;
  }
  if (!HasUsableSize(known.spec)) {
    Fail(scope, it, ErrorCode::kInvalidArgument,
         absl::StrCat("worker ", known.source, " announced it as ", DescribeSpec(known.spec),
                      ", which has no usable size."));
    return;
  }
  const bool same = fetch.known.has_value() && fetch.known->digest == known.digest &&
                    fetch.known->spec == known.spec;
  fetch.known = known;
  if (!same) Restart(fetch);
  if (fetch.phase == Phase::kAsking) {
    fetch.phase = Phase::kQueued;
    queue_.push_back(known.key);
  } else if (fetch.phase == Phase::kFetching) {
    Advance(scope, it);
  }
  StartQueued(scope);
}

void Blobs::Restart(Fetch& fetch) {
  fetch.held.Clear();
  fetch.digest = 0;
  fetch.asked = 0;
}

void Blobs::StartQueued(const Scope& scope) {
  while (active_ < scope.config.max_fetches && !queue_.empty()) {
    const auto it = fetches_.find(queue_.front());
    queue_.pop_front();
    it->second.phase = Phase::kFetching;
    it->second.progress = scope.now;
    wake_ = std::min(wake_, scope.now + scope.config.value_retry);
    ++active_;
    Advance(scope, it);
  }
}

void Blobs::Advance(const Scope& scope, Fetches::iterator it) {
  Fetch& fetch = it->second;
  const uint64_t total = Chunks(fetch.known->spec);
  if (fetch.held.count() == total) {
    if (fetch.digest == fetch.known->digest) {
      End(scope, it, BlobReady{it->first, fetch.known->spec, fetch.known->source});
      return;
    }
    if (fetch.refetched || total == 0) {
      Fail(scope, it, ErrorCode::kDataCorrupt,
           absl::StrCat("its digest did not match what worker ", fetch.known->source,
                        " announced, twice. Check the memory and network of both."));
      return;
    }
    fetch.refetched = true;
    Restart(fetch);
  }
  const uint64_t window = std::max<uint64_t>(scope.config.blob_window_chunks, 2);
  uint64_t coming = 0;
  for (const Interval& part : fetch.held.Outside({0, fetch.asked})) coming += part.size();
  while (fetch.asked < total && coming <= window / 2) {
    const Interval next{fetch.asked, std::min(total, fetch.asked + window - coming)};
    for (const Interval& part : fetch.held.Outside(next)) {
      AskChunks(scope, it->first, fetch, part);
      coming += part.size();
    }
    fetch.asked = next.end;
    fetch.progress = scope.now;
  }
}

void Blobs::OnChunks(const Scope& scope, const BlobReceived& received) {
  const auto it = fetches_.find(received.key);
  if (it == fetches_.end() || it->second.phase != Phase::kFetching) return;
  Fetch& fetch = it->second;
  const uint64_t total = Chunks(fetch.known->spec);
  const Interval chunks{received.first, uint64_t{received.first} + received.count};
  if (chunks.empty() || chunks.end > total || received.digests.size() != received.count) return;
  for (const Interval& part : fetch.held.Outside(chunks)) {
    scope.actions.push_back(KeepBlob{received.key, static_cast<uint32_t>(part.begin),
                                     static_cast<uint32_t>(part.size())});
    for (uint64_t i = part.begin; i < part.end; ++i) {
      fetch.digest += received.digests[i - chunks.begin];
    }
  }
  fetch.held.Add(chunks);
  fetch.progress = scope.now;
  Advance(scope, it);
  StartQueued(scope);
}

void Blobs::OnFailed(const Scope& scope, const GetFailed& failed) {
  const auto it = fetches_.find(failed.key);
  if (it == fetches_.end()) return;
  End(scope, it, BlobFailed{failed.key, failed.error});
  StartQueued(scope);
}

void Blobs::Fail(const Scope& scope, Fetches::iterator it, ErrorCode code, const std::string& why) {
  const Error error{code, absl::StrCat("Cannot get ", Describe(it->first), ": ", why)};
  End(scope, it, BlobFailed{it->first, error});
}

void Blobs::End(const Scope& scope, Fetches::iterator it, Action outcome) {
  scope.actions.push_back(std::move(outcome));
  if (it->second.phase == Phase::kQueued) {
    queue_.erase(std::find(queue_.begin(), queue_.end(), it->first));
  }
  if (it->second.phase == Phase::kFetching) --active_;
  fetches_.erase(it);
}

void Blobs::FailAll(const Scope& scope, const Error& error) {
  for (const auto& [key, fetch] : fetches_) scope.actions.push_back(BlobFailed{key, error});
  fetches_.clear();
  queue_.clear();
  active_ = 0;
}

// The chunks of one request go over one stream, so that they arrive in order. Nothing is kept to be
// sent again: the receiver repeats its request.
void Blobs::OnAsk(const Scope& scope, const Ask& ask) const {
  const auto it = announced_.find({ask.key.lane, ask.key.tensor});
  if (it == announced_.end() || it->second.version != ask.key.version) return;
  const std::optional<uint32_t> stream = scope.streams.Pick(kCoordinatorShard, scope.frame.chunks);
  const uint64_t total = Chunks(it->second.spec);
  const uint64_t end = std::min(total, uint64_t{ask.first} + ask.count);
  if (!stream.has_value()) return;
  for (uint64_t first = ask.first; first < end; first += scope.frame.chunks) {
    const uint64_t count = std::min<uint64_t>(end - first, scope.frame.chunks);
    scope.actions.push_back(
        SendBlob{*stream, ask.key, static_cast<uint32_t>(first), static_cast<uint32_t>(count)});
  }
}

void Blobs::EndSession() {
  for (auto& [key, fetch] : fetches_) {
    fetch.phase = Phase::kAsking;
    fetch.asked = 0;
  }
  queue_.clear();
  active_ = 0;
}

void Blobs::StartSession(const Scope& scope) {
  for (const auto& [name, value] : announced_) {
    scope.Send(basin::Announce{{name.first, name.second, value.version}, value.spec, value.digest});
  }
  for (const auto& [key, fetch] : fetches_) AskWhat(scope, key, fetch);
}

void Blobs::Tick(const Scope& scope) {
  if (scope.now < wake_) return;
  wake_ = absl::InfiniteFuture();
  for (auto it = fetches_.begin(); it != fetches_.end();) {
    const auto next = std::next(it);
    Fetch& fetch = it->second;
    if (scope.now >= fetch.deadline) {
      const std::string root =
          fetch.root.has_value() ? absl::StrCat("worker ", *fetch.root) : std::string("any worker");
      Fail(scope, it, ErrorCode::kDeadlineExceeded,
           absl::StrCat("it did not arrive in time from ", root,
                        !scope.welcomed        ? "; the aggregator is not connected."
                        : !scope.pause.empty() ? absl::StrCat(". ", scope.pause)
                                               : ". Publish it there, or wait longer."));
      it = next;
      continue;
    }
    wake_ = std::min(wake_, fetch.deadline);
    if (fetch.phase == Phase::kFetching) {
      if (scope.now >= fetch.progress + scope.config.value_retry) {
        fetch.progress = scope.now;
        for (const Interval& part : fetch.held.Outside({0, fetch.asked})) {
          AskChunks(scope, it->first, fetch, part);
        }
      }
      wake_ = std::min(wake_, fetch.progress + scope.config.value_retry);
    }
    it = next;
  }
  StartQueued(scope);
}

}  // namespace basin::client

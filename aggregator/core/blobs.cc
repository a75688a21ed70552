// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/blobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

// One worker may have this many requests for one blob; a client keeps a window of a few.
constexpr size_t kMaxRequests = 64;

// What is known of the blobs of a job is charged in pieces of this size; less than one is free.
constexpr uint64_t kWeightPiece = uint64_t{64} << 10;

std::string Describe(const BlobKey& key) {
  return absl::StrCat("tensor ", key.tensor, " (lane ", key.lane, ", version ", key.version, ")");
}

}  // namespace

uint64_t Blobs::WeightOf(const Key& key, const Entry& entry) {
  // Nodes of trees, with what they hold.
  constexpr uint64_t kEntry = 256;
  constexpr uint64_t kHolder = 256;
  constexpr uint64_t kRequest = 384;
  constexpr uint64_t kReceiver = 64;
  const uint64_t names = std::get<0>(key).size() + std::get<1>(key).size();
  uint64_t weight = kEntry + 2 * names + entry.known.size() * kReceiver +
                    entry.requests.size() * (kRequest + names);
  for (const auto& [id, holder] : entry.holders) {
    const TensorSpec& spec = holder.second.spec;
    weight += kHolder + id.size() + spec.name.size() + spec.shape.size() * sizeof(spec.shape[0]);
  }
  return weight;
}

void Blobs::Weigh(const BlobScope& scope, const Key& key, Entry& entry) {
  const uint64_t before = std::exchange(entry.weight, WeightOf(key, entry));
  Charge(scope, before, entry.weight);
}

bool Blobs::HasRoomFor(const BlobScope& scope, const Key& key) {
  Entry entry;
  entry.requests.emplace_back();
  return scope.memory.free() >= WeightOf(key, entry) + kWeightPiece;
}

Blobs::Entries::iterator Blobs::Erase(const BlobScope& scope, Entries::iterator entry) {
  Charge(scope, entry->second.weight, 0);
  return entries_.erase(entry);
}

void Blobs::Charge(const BlobScope& scope, uint64_t before, uint64_t after) {
  const uint64_t charged = weight_ / kWeightPiece;
  weight_ += after - before;
  scope.memory.reserved += (weight_ / kWeightPiece - charged) * kWeightPiece;  // Modulo 2^64.
}

uint64_t Blobs::cached_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [use, key] : uses_) bytes += entries_.at(key).cached->bytes;
  return bytes;
}

uint64_t Blobs::reserved_bytes() const {
  return cached_bytes() + weight_ / kWeightPiece * kWeightPiece;
}

void Blobs::Fail(const BlobScope& scope, const Key& key, const Request& request, ErrorCode code,
                 const std::string& text) {
  const BlobKey value = NameOf(key);
  const Worker& worker = scope.workers[request.slot];
  scope.actions.push_back(
      Note{NoteKind::kValueFailed, scope.job_name, worker.id, value.lane, 0, text});
  if (worker.connected()) {
    scope.actions.push_back(Send{*worker.session, GetFailed{value, Error{code, text}}});
  }
}

void Blobs::Keep(const Key& key, Entry& entry, Request request) {
  request.number = ++next_request_;
  deadlines_.emplace(std::make_pair(request.deadline, request.number), key);
  ++waiting_[request.slot];
  entry.requests.push_back(std::move(request));
}

void Blobs::Forget(const Request& request) {
  deadlines_.erase({request.deadline, request.number});
  const auto waiting = waiting_.find(request.slot);
  if (--waiting->second == 0) waiting_.erase(waiting);
  if (deadlines_.empty()) next_request_ = 0;
}

// Removes the requests for which `done` is true.
template <typename F>
void Blobs::ForgetIf(Entry& entry, F&& done) {
  const auto over = [&](Request& request) {
    if (!done(request)) return false;
    Forget(request);
    return true;
  };
  entry.requests.erase(std::remove_if(entry.requests.begin(), entry.requests.end(), over),
                       entry.requests.end());
}

void Blobs::Announce(const BlobScope& scope, Slot slot, const basin::Announce& announce) {
  const Worker& worker = scope.workers[slot];
  const Key key{announce.key.lane, announce.key.tensor, announce.key.version};
  const auto same_tensor = [&](const Key& other) {
    return std::get<0>(other) == announce.key.lane && std::get<1>(other) == announce.key.tensor;
  };
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    const std::string text = absl::StrCat("Job ", scope.job_name, ": worker ", worker.id,
                                          " cannot announce ", Describe(announce.key), ": ", why);
    scope.actions.push_back(
        Note{NoteKind::kValueFailed, scope.job_name, worker.id, announce.key.lane, 0, text});
    scope.actions.push_back(Send{*worker.session, Rejected{Error{code, text}, std::nullopt, 0}});
  };
  if (!TensorBytes(announce.spec).has_value()) {
    return refuse(ErrorCode::kInvalidArgument,
                  absl::StrCat(DescribeSpec(announce.spec), " has no size."));
  }
  if (entries_.count(key) == 0 && entries_.size() >= scope.config.max_values) {
    return refuse(
        ErrorCode::kResourceExhausted,
        absl::StrCat("the job has ", entries_.size(),
                     " announced values, which is its limit (limits.values); announce fewer."));
  }
  if (entries_.count(key) == 0 && !HasRoomFor(scope, key)) {
    return refuse(ErrorCode::kResourceExhausted,
                  absl::StrCat("only ", scope.memory.free(), " of ", scope.memory.total,
                               " bytes are free; announce fewer values at a time, or have "
                               "memory.budget raised."));
  }
  // This worker no longer serves older versions of the tensor.
  for (auto it = entries_.lower_bound(Key{announce.key.lane, announce.key.tensor, 0});
       it != entries_.end() && same_tensor(it->first) && it->first < key;) {
    it->second.holders.erase(worker.id);
    it->second.known.erase(slot);
    AskOthers(scope, it->first, it->second, slot,
              absl::StrCat("worker ", worker.id, " has a newer version"));
    DropUnneeded(scope, it->first, it->second);
    it = it->second.unused() ? Erase(scope, it) : std::next(it);
  }
  Entry& entry = entries_[key];
  entry.holders[worker.id] = {slot, Holding{announce.spec, announce.digest}};
  DropUnneeded(scope, key, entry);
  ServeAll(scope, key, entry);
  Weigh(scope, key, entry);
}

void Blobs::Get(const BlobScope& scope, Slot slot, const basin::Get& get) {
  const Key key{get.key.lane, get.key.tensor, get.key.version};
  Request request;
  request.slot = slot;
  request.expected = get.expected;
  request.source = get.source;
  request.first = get.first;
  request.count = get.count;
  request.deadline = scope.now + get.timeout;
  if (entries_.count(key) == 0 && entries_.size() >= scope.config.max_values) {
    Fail(scope, key, request, ErrorCode::kResourceExhausted,
         absl::StrCat(
             "Job ", scope.job_name, " waits for ", entries_.size(),
             " broadcast values, which is its limit (limits.values); request fewer at once."));
    return;
  }
  if (entries_.count(key) == 0 && !HasRoomFor(scope, key)) {
    Fail(scope, key, request, ErrorCode::kResourceExhausted,
         absl::StrCat("Job ", scope.job_name, ": there is no memory to wait for ",
                      Describe(get.key), ": only ", scope.memory.free(), " of ", scope.memory.total,
                      " bytes are free; request fewer values at a time, or have memory.budget "
                      "raised."));
    return;
  }
  Entry& entry = entries_[key];
  if (const auto known = entry.known.find(slot); known != entry.known.end()) {
    request.digest = known->second.digest;
  }
  const auto same = [&](const Request& other) {
    return other.slot == slot && other.first == request.first && other.count == request.count;
  };
  const auto before = std::find_if(entry.requests.begin(), entry.requests.end(), same);
  if (before != entry.requests.end()) {
    if (before->asked.has_value()) request.silent = scope.workers[*before->asked].id;
    Forget(*before);
    entry.requests.erase(before);
  }
  const auto mine = std::count_if(entry.requests.begin(), entry.requests.end(),
                                  [&](const Request& other) { return other.slot == slot; });
  if (static_cast<size_t>(mine) >= kMaxRequests) {
    Fail(scope, key, request, ErrorCode::kResourceExhausted,
         absl::StrCat("Job ", scope.job_name, ": worker ", scope.workers[slot].id, " has sent ",
                      mine, " requests at once for ", Describe(get.key),
                      ", which is the limit; request more chunks at a time."));
    return;
  }
  if (Serve(scope, key, entry, request)) {
    Weigh(scope, key, entry);
    return;
  }
  if (FailIfSourceLeft(scope, key, request)) {
    if (entry.unused()) Erase(scope, entries_.find(key));
    return;
  }
  if (const auto waiting = waiting_.find(slot);
      waiting != waiting_.end() && waiting->second >= scope.config.max_values) {
    Fail(scope, key, request, ErrorCode::kResourceExhausted,
         absl::StrCat("Job ", scope.job_name, ": worker ", scope.workers[slot].id, " waits for ",
                      waiting->second,
                      " parts of broadcast values, which is its limit (limits.values); request "
                      "fewer at once."));
    if (entry.unused()) Erase(scope, entries_.find(key));
    return;
  }
  Keep(key, entry, std::move(request));
  Weigh(scope, key, entry);
}

bool Blobs::Serve(const BlobScope& scope, const Key& key, Entry& entry, Request& request) {
  if (request.asked.has_value()) return false;
  const Worker& receiver = scope.workers[request.slot];
  if (request.count > 0) {
    ServeCached(scope, key, entry, request);
    if (request.count == 0) return true;
  }
  // A holder that did not answer is asked last, because it may no longer serve the blob.
  auto next = request.silent.has_value() ? entry.holders.upper_bound(*request.silent)
                                         : entry.holders.begin();
  for (size_t i = 0; i < entry.holders.size(); ++i) {
    if (next == entry.holders.end()) next = entry.holders.begin();
    const auto& [id, holder] = *next++;
    const auto& [slot, holding] = holder;
    if (request.source.has_value() && *request.source != id) continue;
    if (slot == request.slot || !scope.workers[slot].connected()) continue;
    if (request.count == 0) {
      if (request.expected.has_value() && *request.expected != holding.spec) {
        Fail(scope, key, request, ErrorCode::kMismatch,
             absl::StrCat("Job ", scope.job_name, ": worker ", receiver.id, " expects ",
                          Describe(NameOf(key)), " as ", DescribeSpec(*request.expected),
                          " but worker ", id, " has it as ", DescribeSpec(holding.spec),
                          ". Build the same model on both."));
        return true;
      }
      entry.known[request.slot] = Known{holding.digest, 0};
      if (receiver.connected()) {
        scope.actions.push_back(
            Send{*receiver.session, BlobKnown{NameOf(key), holding.spec, holding.digest, id}});
      }
      return true;
    }
    if (request.digest.has_value() && *request.digest != holding.digest) continue;
    const uint32_t chunks = ChunkCount(*TensorBytes(holding.spec));
    if (request.first >= chunks || request.count > chunks - request.first) {
      Fail(scope, key, request, ErrorCode::kInvalidArgument,
           absl::StrCat("Job ", scope.job_name, ": worker ", receiver.id, " requests ",
                        request.count, " chunks from ", request.first, " of ",
                        Describe(NameOf(key)), ", which has ", chunks, "."));
      return true;
    }
    request.asked = slot;
    scope.actions.push_back(
        Send{*scope.workers[slot].session, Ask{NameOf(key), request.first, request.count}});
    return false;
  }
  return false;
}

// Fails a request that only one worker may serve if that worker has left; returns whether it did. A
// worker that was merely lost may return and announce the blob again.
bool Blobs::FailIfSourceLeft(const BlobScope& scope, const Key& key, const Request& request) {
  if (!request.source.has_value()) return false;
  const std::optional<Slot> source = scope.workers.Find(*request.source);
  if (!source.has_value() || !scope.workers[*source].left) return false;
  Fail(scope, key, request, ErrorCode::kUnavailable,
       absl::StrCat("Job ", scope.job_name, ": worker ", scope.workers[request.slot].id,
                    " requests ", Describe(NameOf(key)), " from worker ", *request.source,
                    ", which has left the job. The root must stay in the job until every worker "
                    "has its value."));
  return true;
}

void Blobs::ServeAll(const BlobScope& scope, const Key& key, Entry& entry) {
  ForgetIf(entry, [&](Request& request) { return Serve(scope, key, entry, request); });
}

// Asks another holder of the same blob for what `slot` was asked for. If there is none, connected
// or not, the receiver cannot get the rest of the blob, and the error has the reason.
void Blobs::AskOthers(const BlobScope& scope, const Key& key, Entry& entry, Slot slot,
                      const std::string& why) {
  std::vector<Request> again;
  for (auto it = entry.requests.begin(); it != entry.requests.end();) {
    if (it->asked != slot) {
      ++it;
      continue;
    }
    again.push_back(*it);
    Forget(*it);
    it = entry.requests.erase(it);
  }
  for (Request& request : again) {
    request.asked.reset();
    const bool other =
        std::any_of(entry.holders.begin(), entry.holders.end(), [&](const auto& holder) {
          return holder.second.first != request.slot &&
                 (!request.source.has_value() || *request.source == holder.first) &&
                 (!request.digest.has_value() || *request.digest == holder.second.second.digest);
        });
    if (!other) {
      Fail(scope, key, request, ErrorCode::kUnavailable,
           absl::StrCat("Job ", scope.job_name, ": ", why, ", and nobody else holds ",
                        Describe(NameOf(key)),
                        " with the same content. Ask again: another holder may announce it."));
      continue;
    }
    if (!Serve(scope, key, entry, request)) Keep(key, entry, std::move(request));
  }
}

void Blobs::Received(const BlobScope& scope, Slot slot, const BlobReceived& received) {
  const Key key{received.key.lane, received.key.tensor, received.key.version};
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  Entry& entry = it->second;
  RelayBlob relay{scope.job, received.key, received.first, received.count, {}, false};
  // A request has ended when its last chunk has passed: its frames arrive in order, and after a
  // lost stream the receiver sends the request again.
  const uint64_t end = uint64_t{received.first} + received.count;
  const auto end_of = [](const Request& request) {
    return uint64_t{request.first} + request.count;
  };
  for (const Request& request : entry.requests) {
    const bool overlaps =
        request.asked == slot && received.first < end_of(request) && request.first < end;
    const Worker& receiver = scope.workers[request.slot];
    if (overlaps && receiver.connected()) relay.sessions.push_back(*receiver.session);
  }
  ForgetIf(entry, [&](const Request& request) {
    return request.asked == slot && request.count > 0 && end >= end_of(request) &&
           received.first < end_of(request);
  });
  if (relay.sessions.empty()) return;
  const auto holder = entry.holders.find(scope.workers[slot].id);
  if (holder != entry.holders.end()) {
    const Holding& value = holder->second.second;
    // Kept chunks are charged by the announced size, so they must match it.
    const uint64_t total = *TensorBytes(value.spec);
    const bool exists =
        received.count > 0 && end <= ChunkCount(total) &&
        received.bytes == std::min(total, end * kChunkBytes) - received.first * kChunkBytes;
    if (exists && MayCache(scope, entry, value)) {
      relay.cache = true;
      Use(key, *entry.cached);
      for (uint64_t chunk = received.first; chunk < end; ++chunk) entry.cached->chunks.Set(chunk);
    }
  }
  scope.actions.push_back(std::move(relay));
}

void Blobs::Clear(const BlobScope& scope) {
  DropCached(scope);
  Charge(scope, weight_, 0);
  entries_.clear();
  deadlines_.clear();
  waiting_.clear();
}

void Blobs::Lose(const BlobScope& scope, Slot slot) {
  ForgetRequests(scope, slot);
  const WorkerId& id = scope.workers[slot].id;
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& entry = it->second;
    entry.holders.erase(id);
    AskOthers(scope, it->first, entry, slot, absl::StrCat("worker ", id, " was lost"));
    ForgetIf(entry,
             [&](const Request& request) { return FailIfSourceLeft(scope, it->first, request); });
    DropUnneeded(scope, it->first, entry);
    Weigh(scope, it->first, entry);
    it = entry.unused() ? Erase(scope, it) : std::next(it);
  }
}

void Blobs::ForgetRequests(const BlobScope& scope, Slot slot) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& entry = it->second;
    entry.known.erase(slot);
    ForgetIf(entry, [&](const Request& request) { return request.slot == slot; });
    DropUnneeded(scope, it->first, entry);
    Weigh(scope, it->first, entry);
    it = entry.unused() ? Erase(scope, it) : std::next(it);
  }
}

void Blobs::Resume(const BlobScope& scope, Slot slot) {
  for (auto& [key, entry] : entries_) {
    for (Request& request : entry.requests) {
      if (request.asked == slot) request.asked.reset();
    }
    ServeAll(scope, key, entry);
  }
}

void Blobs::CheckDeadlines(const BlobScope& scope) {
  while (!deadlines_.empty() && deadlines_.begin()->first.first <= scope.now) {
    const uint64_t number = deadlines_.begin()->first.second;
    const auto it = entries_.find(deadlines_.begin()->second);
    Entry& entry = it->second;
    const auto request =
        std::find_if(entry.requests.begin(), entry.requests.end(),
                     [&](const Request& waiting) { return waiting.number == number; });
    const std::string root =
        request->source.has_value() ? absl::StrCat("worker ", *request->source) : "any worker";
    Fail(scope, it->first, *request, ErrorCode::kDeadlineExceeded,
         absl::StrCat("Job ", scope.job_name, ": worker ", scope.workers[request->slot].id,
                      " waited for ", Describe(NameOf(it->first)), " from ", root,
                      ", which did not publish it in time. ",
                      scope.pause.empty() ? "Publish it there, or wait longer." : scope.pause));
    Forget(*request);
    entry.requests.erase(request);
    Weigh(scope, it->first, entry);
    if (entry.unused()) Erase(scope, it);
  }
}

}  // namespace basin::aggregator

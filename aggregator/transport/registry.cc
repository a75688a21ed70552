// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/registry.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/transport/exchange_reactor.h"
#include "aggregator/transport/session_reactor.h"
#include "runtime/grpc/peer.h"

namespace basin::aggregator {
namespace {

template <typename Map>
typename Map::mapped_type FindIn(const Map& map, uint64_t connection) {
  const auto found = map.find(connection);
  return found == map.end() ? nullptr : found->second;
}

template <typename Map>
typename Map::mapped_type TakeFrom(Map& map, uint64_t connection) {
  const auto found = map.find(connection);
  if (found == map.end()) return nullptr;
  auto taken = std::move(found->second);
  map.erase(found);
  return taken;
}

}  // namespace

void Registry::ReportPeer(const std::string& peer, const std::string& what,
                          const std::string& kind) const {
  if (report_ != nullptr) report_(AddressIn(peer), kind, what);
}

// A caller without a valid credential does not learn why others are refused.
absl::Status Registry::Admit(const StreamReactor& caller, Rpc rpc, const std::string& job,
                             const std::string& who) {
  absl::Status permitted = Permit(caller, rpc, job, who);
  if (!permitted.ok()) return permitted;
  MutexLock lock(mutex_);
  return refusal_;
}

absl::Status Registry::Permit(const StreamReactor& caller, Rpc rpc, const std::string& job,
                              const std::string& who) {
  if (gatekeeper_ == nullptr) return absl::OkStatus();
  // Before the hello, the right to train in any job is enough.
  if (job.empty() && rpc != Rpc::kShard &&
      gatekeeper_->MayCall(caller.credentials(), Rpc::kExchange, "")) {
    return absl::OkStatus();
  }
  const Gatekeeper::Ruling ruling = gatekeeper_->Check(caller.credentials(), rpc, job, who);
  if (!ruling.for_peer.ok()) ReportPeer(caller.peer(), ruling.for_operator, ruling.kind);
  return ruling.for_peer;
}

absl::Status Registry::AdmitTo(const StreamReactor& caller, SessionId session, const JobName& job) {
  const std::shared_ptr<SessionReactor> owner = FindSession(session);
  return Admit(
      caller, Rpc::kSession, job,
      absl::StrCat("a data stream of ",
                   owner != nullptr ? owner->who() : absl::StrCat("a worker of job ", job)));
}

void Registry::EndRevoked() {
  std::vector<std::shared_ptr<SessionReactor>> sessions;
  std::vector<std::shared_ptr<ExchangeReactor>> streams;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) sessions.push_back(session);
    for (const auto& [id, stream] : streams_) streams.push_back(stream);
  }
  std::vector<std::shared_ptr<StreamReactor>> revoked;
  for (const auto& stream : streams) {
    const std::optional<std::string> job = stream->job();
    const bool allowed = job.has_value()
                             ? gatekeeper_->MayCall(stream->credentials(), Rpc::kSession, *job)
                             : gatekeeper_->MayCall(stream->credentials(), Rpc::kExchange, "");
    if (!allowed) revoked.push_back(stream);
  }
  for (const auto& session : sessions) {
    if (!gatekeeper_->MayCall(session->credentials(), Rpc::kSession, session->job())) {
      revoked.push_back(session);
    }
  }
  for (const auto& stream : revoked) {
    ReportPeer(stream->peer(), "Its token or certificate was revoked; its streams end.");
    stream->Close(absl::UnauthenticatedError(
                      "The token or certificate of this worker was revoked. Ask the operator of "
                      "the aggregator for a valid one."),
                  StreamReactor::Rest::kDrop);
  }
}

void Registry::RefuseAll(const absl::Status& why) {
  MutexLock lock(mutex_);
  refusal_ = why;
}

void Registry::EndAll(const absl::Status& why) {
  for (const auto& stream : All()) stream->Close(why, StreamReactor::Rest::kDrop);
}

std::vector<std::shared_ptr<StreamReactor>> Registry::All() const {
  std::vector<std::shared_ptr<StreamReactor>> all;
  MutexLock lock(mutex_);
  for (const auto& [id, stream] : streams_) all.push_back(stream);
  for (const auto& [id, session] : sessions_) all.push_back(session);
  return all;
}

SessionId Registry::Open(std::shared_ptr<SessionReactor> session) {
  MutexLock lock(mutex_);
  const SessionId id = engine_->OpenSession(SourceOf(AddressIn(session->peer())));
  sessions_[id] = std::move(session);
  return id;
}

StreamId Registry::Open(std::shared_ptr<ExchangeReactor> stream, SessionToken token) {
  MutexLock lock(mutex_);
  const StreamId id = sink_.OpenStream(token);
  streams_[id] = std::move(stream);
  return id;
}

void Registry::CloseSession(SessionId session, const absl::Status& ended) {
  if (TakeSession(session) == nullptr) return;
  engine_->CloseSession(session, std::string(ended.message()), absl::IsInvalidArgument(ended));
}

void Registry::CloseStream(StreamId stream) {
  if (TakeStream(stream) != nullptr) sink_.CloseStream(stream);
}

std::shared_ptr<SessionReactor> Registry::TakeSession(SessionId session) {
  std::shared_ptr<SessionReactor> taken;
  SessionToken token = 0;
  {
    MutexLock lock(mutex_);
    taken = TakeFrom(sessions_, session);
    const auto found = tokens_.find(session);
    if (found == tokens_.end()) return taken;
    token = found->second;
    tokens_.erase(found);
    past_.Add(token);
  }
  if (local_ != nullptr) local_->Forget(token);
  return taken;
}

void Registry::Welcome(SessionId session, SessionToken token) {
  MutexLock lock(mutex_);
  if (sessions_.count(session) == 0) return;
  tokens_[session] = token;
  if (local_ != nullptr) local_->Admit(token);
}

bool Registry::IsPast(SessionToken token) const {
  MutexLock lock(mutex_);
  return past_.Has(token);
}

std::shared_ptr<Segments> Registry::SharedIn(SessionToken token) const {
  return local_ == nullptr ? nullptr : local_->Find(token);
}

Peer Registry::PeerOf(SessionId session) const {
  SessionToken token = 0;
  Peer peer;
  {
    MutexLock lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return peer;
    peer.address = AddressIn(found->second->peer());
    if (const auto welcomed = tokens_.find(session); welcomed != tokens_.end()) {
      token = welcomed->second;
    }
  }
  const std::shared_ptr<Segments> shared = token == 0 ? nullptr : SharedIn(token);
  peer.shares_memory = shared != nullptr;
  if (shared != nullptr) peer.shared_device_bytes = shared->device_bytes();
  return peer;
}

std::shared_ptr<ExchangeReactor> Registry::TakeStream(StreamId stream) {
  MutexLock lock(mutex_);
  return TakeFrom(streams_, stream);
}

std::shared_ptr<SessionReactor> Registry::FindSession(SessionId session) const {
  MutexLock lock(mutex_);
  return FindIn(sessions_, session);
}

std::shared_ptr<ExchangeReactor> Registry::FindStream(StreamId stream) const {
  MutexLock lock(mutex_);
  return FindIn(streams_, stream);
}

std::shared_ptr<StreamReactor> Registry::Find(uint64_t connection) const {
  if (auto stream = FindStream(connection)) return stream;
  return FindSession(connection);
}

}  // namespace basin::aggregator

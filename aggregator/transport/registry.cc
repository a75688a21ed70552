// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/registry.h"

#include <utility>

#include "aggregator/transport/exchange_reactor.h"
#include "aggregator/transport/session_reactor.h"

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

void Registry::ReportPeer(const std::string& peer, const std::string& what) const {
  if (report_ == nullptr) return;
  // Without its kind and its port.
  const size_t begin = peer.find(':') + 1;
  const size_t end = peer.rfind(':');
  report_(end == std::string::npos || end < begin ? peer : peer.substr(begin, end - begin), what);
}

SessionId Registry::Open(std::shared_ptr<SessionReactor> session) {
  MutexLock lock(mutex_);
  const SessionId id = engine_.OpenSession();
  sessions_[id] = std::move(session);
  return id;
}

StreamId Registry::Open(std::shared_ptr<ExchangeReactor> stream, SessionToken token) {
  MutexLock lock(mutex_);
  const StreamId id = engine_.OpenStream(token);
  streams_[id] = std::move(stream);
  return id;
}

void Registry::CloseSession(SessionId session, const absl::Status& ended) {
  if (TakeSession(session) != nullptr) engine_.CloseSession(session, std::string(ended.message()));
}

void Registry::CloseStream(StreamId stream) {
  if (TakeStream(stream) != nullptr) engine_.CloseStream(stream);
}

std::shared_ptr<SessionReactor> Registry::TakeSession(SessionId session) {
  MutexLock lock(mutex_);
  return TakeFrom(sessions_, session);
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

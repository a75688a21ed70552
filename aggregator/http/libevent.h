// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Ownership of libevent's objects.
//
// Thread contract: plain values; an object belongs to the thread that runs its base.

#ifndef BASIN_AGGREGATOR_HTTP_LIBEVENT_H_
#define BASIN_AGGREGATOR_HTTP_LIBEVENT_H_

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>

#include <memory>

namespace basin::aggregator {

template <typename T, void (*free_object)(T*)>
struct EventDelete {
  void operator()(T* object) const { free_object(object); }
};
template <typename T, void (*free_object)(T*)>
using EventPtr = std::unique_ptr<T, EventDelete<T, free_object>>;

using BasePtr = EventPtr<event_base, event_base_free>;
using TimerPtr = EventPtr<event, event_free>;
using StreamPtr = EventPtr<bufferevent, bufferevent_free>;
// Owns its stream.
using HttpConnectionPtr = EventPtr<evhttp_connection, evhttp_connection_free>;

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_HTTP_LIBEVENT_H_

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What takes the data streams that a transport brings: the engine of a coordinator, or that of a
// shard.
//
// Thread contract: safe from any thread; the calls do not block. REQUIRES: the caller holds no lock
// that its own calls need, because it may hold the loop.

#ifndef BASIN_AGGREGATOR_ENGINE_STREAM_SINK_H_
#define BASIN_AGGREGATOR_ENGINE_STREAM_SINK_H_

#include "aggregator/core/event.h"
#include "protocol/ids.h"
#include "runtime/frames/frame.h"

namespace basin::aggregator {

class StreamSink {
 public:
  virtual ~StreamSink() = default;

  // A stream presents the token of a session. Its number is never used for another one.
  virtual StreamId OpenStream(SessionToken token) = 0;
  virtual void OnFrame(StreamId stream, IncomingFrame frame) = 0;
  // The peer or the network ended it.
  virtual void CloseStream(StreamId stream) = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_STREAM_SINK_H_

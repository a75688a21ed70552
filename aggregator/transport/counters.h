// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the transport counts, for metrics: what went over the wire, and each way in which a peer
// lost its stream by its own doing.
//
// Thread contract: counted on any thread, read on any thread; one number at a time.

#ifndef BASIN_AGGREGATOR_TRANSPORT_COUNTERS_H_
#define BASIN_AGGREGATOR_TRANSPORT_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace basin::aggregator {

using Counter = std::atomic<uint64_t>;

// Only counts up.
struct TransportCounters {
  // Streams: sessions that said hello and data streams that presented a token; and all calls that
  // have begun and ended, whether or not they came that far.
  Counter sessions{0};
  Counter streams{0};
  Counter calls_begun{0};
  Counter calls_ended{0};

  // Messages of any kind, as handed to us by gRPC or to gRPC by us.
  Counter messages_received{0};
  Counter bytes_received{0};
  Counter messages_sent{0};
  Counter bytes_sent{0};
  Counter frames_encoded{0};  // Once per frame, whatever the number of its receivers.

  // What a peer did wrong.
  Counter malformed_messages{0};   // On a session: does not parse, breaks a bound, no hello first.
  Counter malformed_frames{0};     // On a data stream: the same; no Bind first; of a wrong kind.
  Counter damaged_frames{0};       // A wrong checksum, or a gap in the sequence.
  Counter version_mismatches{0};   // Of data streams; the core counts those of sessions.
  Counter silent_calls{0};         // Opened a stream and did not say what for.
  Counter unknown_tokens{0};       // A data stream of no session.
  Counter foreign_connections{0};  // That did not begin as gRPC does.
  Counter floods{0};               // A connection that flooded before it said what it is for.
  Counter slow_readers{0};         // Did not read what was sent to it.

  // Ours, or of who opens too many connections.
  Counter accept_failures{0};  // No file descriptor for a connection; tried again.

  // Our own: what the job has grown to does not fit a message.
  Counter unsendable_messages{0};
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_COUNTERS_H_

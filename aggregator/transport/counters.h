// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The counters of the transport, for metrics: traffic, and each violation for which a peer lost its
// stream.
//
// Thread contract: counted on any thread, read on any thread; one number at a time.

#ifndef BASIN_AGGREGATOR_TRANSPORT_COUNTERS_H_
#define BASIN_AGGREGATOR_TRANSPORT_COUNTERS_H_

#include <atomic>
#include <cstdint>

#include "runtime/gauge.h"

namespace basin::aggregator {

using Counter = std::atomic<uint64_t>;

// Only counts up, but for the gauges.
struct TransportCounters {
  // Gauges: messages that wait for their peers to read them, as if each receiver had its own copy,
  // and messages of sessions and frames that wait to be handled.
  Counter outbox_bytes{0};
  Counter inbox_bytes{0};
  Counter inbox_frame_bytes{0};
  // The same by what takes memory: frames that arrived, for as long as anything holds them, and
  // messages that leave, without payloads, until gRPC has sent them.
  const Gauge frame_memory = NewGauge();
  const Gauge message_memory = NewGauge();

  // Streams: sessions that sent a hello and data streams that presented a token; and all calls that
  // have begun and ended, including those that did neither.
  Counter sessions{0};
  Counter streams{0};
  Counter calls_begun{0};
  Counter calls_ended{0};

  // Messages of any kind, as handed to us by gRPC or to gRPC by us.
  Counter messages_received{0};
  Counter bytes_received{0};
  Counter messages_sent{0};
  Counter bytes_sent{0};
  // Frames with their payload: once, whatever the number of their receivers.
  Counter frames_encoded{0};

  // Sessions of workers on this machine that share memory, and frames whose payload was there.
  Counter local_sessions{0};
  Counter local_frames{0};   // From workers.
  Counter device_frames{0};  // Those among them whose payload was in memory of a device.
  Counter local_results{0};  // To workers, once for each.

  // Violations by peers.
  Counter malformed_messages{0};   // On a session: does not parse, breaks a bound, no hello first.
  Counter malformed_frames{0};     // On a data stream: the same; no Bind first; of a wrong kind.
  Counter damaged_frames{0};       // A wrong checksum, also on a session; a gap in the sequence.
  Counter version_mismatches{0};   // In data streams; the core counts those in sessions.
  Counter silent_calls{0};         // Opened a stream and sent no first message.
  Counter unknown_tokens{0};       // A data stream of no session.
  Counter local_refused{0};        // On the local socket: no valid token, or a broken rule.
  Counter foreign_connections{0};  // Did not begin with gRPC.
  Counter tls_failures{0};         // Began with TLS, and ended before a call.
  Counter floods{0};               // Sent too much, or were too many, before a valid message.
  Counter slow_readers{0};         // Did not read its messages.

  // Caused by the limit of this process, or by a peer with too many connections.
  Counter accept_failures{0};  // No file descriptor for a connection; tried again.

  // Internal: the data of a large job does not fit a message.
  Counter unsendable_messages{0};
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_COUNTERS_H_

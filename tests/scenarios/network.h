// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The network holds the items on their way between workers and aggregators. A session is one
// control connection and k data streams; each is a pair of FIFO pipes, and nothing orders two
// connections. Nothing moves by itself: the script decides what is delivered.
//
// Every item has a number in order of sending, so "deliver all" has one order.
//
// Thread contract: one world, one network, one thread.

#ifndef BASIN_TESTS_SCENARIOS_NETWORK_H_
#define BASIN_TESTS_SCENARIOS_NETWORK_H_

#include <cstdint>
#include <deque>
#include <list>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/event.h"
#include "protocol/messages.h"
#include "tests/scenarios/payload.h"

namespace basin::scenarios {

class AggregatorProcess;
class WorkerProcess;

// The other side has closed the session and every stream of it.
struct Closed {};

struct Item {
  uint64_t number = 0;
  std::variant<ToAggregator, ToWorker, PushFrame, ResultFrame, BlobFrame, Closed> what;
};

using Pipe = std::deque<Item>;

struct Stream {
  aggregator::StreamId id = 0;  // The aggregator's id for it; 0 until the worker has dialed.
  bool open = false;            // The aggregator has accepted it.
  Pipe up;
  Pipe down;
};

struct Link {
  aggregator::SessionId session = 0;
  SessionToken token = 0;
  WorkerProcess* worker = nullptr;
  AggregatorProcess* aggregator = nullptr;
  bool worker_open = true;  // That side still reads and writes.
  bool aggregator_open = true;
  Pipe up;
  Pipe down;
  std::vector<Stream> streams;
};

// A connection that a worker tries to open.
struct Dial {
  uint64_t number = 0;
  absl::Time due;
  WorkerProcess* worker = nullptr;
  bool is_stream = false;
  uint32_t stream = 0;
  SessionToken token = 0;
};

class Network {
 public:
  Link& Connect(WorkerProcess* worker, AggregatorProcess* aggregator, uint32_t streams);
  void Request(Dial dial);

  Link* FindSession(aggregator::SessionId session);
  Link* FindToken(SessionToken token);
  Stream* FindStream(aggregator::StreamId id);
  // Returns the session that this worker has open on its side; null if there is none.
  Link* OpenLinkOf(const WorkerProcess* worker);

  void SendUp(Link& link, ToAggregator message);
  void SendDown(Link& link, ToWorker message);
  void SendFrameUp(Link& link, uint32_t stream, std::variant<PushFrame, BlobFrame> frame);
  void SendFrameDown(Stream& stream, std::variant<ResultFrame, BlobFrame> frame);

  // The worker dials the stream, which gets a new id and is empty.
  Stream& NewStream(Link& link, uint32_t stream);

  // One side closes in good order: what it sent earlier still arrives, and then the close.
  void CloseByWorker(Link& link);
  void CloseByAggregator(Link& link);
  // The process of one side dies: what it had not delivered is lost, and then the close arrives.
  void KillWorkerSide(Link& link);
  void KillAggregatorSide(Link& link);
  // Both directions break at once, and neither side is informed.
  void Break(Link& link);

  std::list<Link>& links() { return links_; }
  std::list<Dial>& dials() { return dials_; }

 private:
  Item Number(
      std::variant<ToAggregator, ToWorker, PushFrame, ResultFrame, BlobFrame, Closed> what) {
    return Item{++numbers_, std::move(what)};
  }
  static void ClearUp(Link& link);
  static void ClearDown(Link& link);

  uint64_t numbers_ = 0;
  uint64_t sessions_ = 0;
  aggregator::StreamId streams_ = 0;
  std::list<Link> links_;
  std::list<Dial> dials_;
};

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_NETWORK_H_

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A shard without its sockets: one event loop that owns the bytes, and threads that reduce. It has
// no core; its coordinator decides, over a CoordinatorLink.
//
//   transport threads --+                                +--> transport (Send, Consumed, ...)
//   reduce workers -----+--> inbox --> loop: ShardRunner +--> reduce workers
//   link ---------------+                                +--> link (events)
//
// While there is no coordinator, there is nothing that could be decided: the shard holds nothing,
// and closes every data stream, so that its worker tries again.
//
// The loop takes one event of each data stream in turn, as that of the aggregator does
// (aggregator/engine/engine.h).
//
// Thread contract: Start and Stop one after the other; everything else from any thread, at any
// time; what comes before Start or after Stop is dropped. Failure: none of its own.

#ifndef BASIN_AGGREGATOR_SHARD_SHARD_ENGINE_H_
#define BASIN_AGGREGATOR_SHARD_SHARD_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "accelerator/transfer/reduce_devices.h"
#include "aggregator/engine/buffer_pool.h"
#include "aggregator/engine/byte_threads.h"
#include "aggregator/engine/fair_queue.h"
#include "aggregator/engine/shard_messages.h"
#include "aggregator/engine/stream_sink.h"
#include "aggregator/engine/transport.h"
#include "aggregator/shard/coordinator_link.h"
#include "aggregator/shard/shard_runner.h"
#include "kernels/reducer.h"
#include "runtime/clock.h"
#include "runtime/event_loop.h"

namespace basin::aggregator {

// For logs. `reason`: as sentences.
using ShardReport = std::function<void(const char* event, bool warning, const std::string& reason)>;

// What a shard has done and holds.
struct ShardSnapshot {
  bool linked = false;
  ShardId shard = 0;  // The number that the coordinator has given it.
  std::string why;    // It is not linked.
  ByteCounters counters;
  uint64_t parked_bytes = 0;
  uint64_t result_bytes = 0;
  uint64_t streams = 0;
  uint64_t unanswered_frames = 0;  // That wait for the coordinator.
  uint64_t links = 0;              // How often it was connected. Only counts up.
};

class ShardEngine : public StreamSink, public CoordinatorLink::Listener {
 public:
  // REQUIRES: all of them outlive it.
  ShardEngine(std::string name, const ByteThreadsOptions& options, Clock& clock,
              const kernels::Reducer& reducer, accelerator::ReduceDevices* devices,
              CoordinatorLink& coordinator, ShardReport report);
  ~ShardEngine() override;
  ShardEngine(const ShardEngine&) = delete;
  ShardEngine& operator=(const ShardEngine&) = delete;

  // REQUIRES: `transport` lives until Stop has returned; the link starts after this and ends before
  // Stop.
  void Start(Transport& transport);
  // The end of the connection is expected from now on: the shard drains.
  void ExpectEnd();
  void Stop();

  // ---- for the transport
  StreamId OpenStream(SessionToken token) override;
  void OnFrame(StreamId stream, IncomingFrame frame) override;
  void CloseStream(StreamId stream) override;

  // ---- for the link
  void OnLinked(uint64_t link, const ShardWelcome& welcome) override;
  void OnSteps(uint64_t link, std::vector<ShardStep> steps, uint64_t bytes) override;
  void OnUnlinked(const absl::Status& why) override;
  void OnRefused(const absl::Status& why) override;

  // ---- for operators
  // Calls `look` from the loop; it must not block.
  void Inspect(std::function<void(const ShardSnapshot& snapshot)> look);
  // How long the oldest event in the inbox has waited.
  absl::Duration InboxDelay() const;
  const BufferPool& pool() const { return threads_.pool(); }

 private:
  using Task = std::function<void(absl::Time now)>;
  struct Posted {
    uint64_t connection = 0;
    absl::Time at;
    Task task;
  };
  static constexpr uint64_t kNow = 0;  // In place of a data stream.

  void Post(uint64_t connection, Task task);
  void Loop();

  // ---- for the loop
  void TakePosted();
  ShardDependencies Dependencies();
  ByteThreads::Reports ReportsOf(uint64_t link);
  void Linked(uint64_t link, const ShardWelcome& welcome);
  void Unlinked(const absl::Status& why);
  void Step(uint64_t link, const std::vector<ShardStep>& steps, uint64_t bytes, absl::Time now);
  ShardSnapshot Snapshot() const;
  // Reports what the shard has done, if it is time; the caller flushes.
  void ReportIfDue(absl::Time now);

  // Constant after construction.
  const std::string name_;
  Clock& clock_;
  CoordinatorLink& coordinator_;
  const ShardReport report_;

  // Synchronise themselves.
  std::atomic<uint64_t> next_stream_{1};
  EventLoop<Posted> events_;

  Transport* transport_ = nullptr;  // Constant after Start.
  std::thread thread_;              // The loop's.

  // The loop's, between Start and Stop.
  ByteThreads threads_;
  std::unique_ptr<ShardRunner> runner_;  // Null: it is not linked.
  ShardId shard_ = 0;
  uint64_t link_ = 0;   // The present connection, or the last one.
  uint64_t links_ = 0;  // How many there were.
  bool draining_ = false;
  ByteCounters before_;  // Those of the links before this one.
  // When the coordinator is to be told what the shard has done, at the earliest.
  absl::Time next_report_ = absl::InfinitePast();
  absl::Time report_due_ = absl::InfiniteFuture();  // Infinite: nothing was done since.
  FairQueue<Posted> queue_;
  std::vector<Posted> taken_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_SHARD_SHARD_ENGINE_H_

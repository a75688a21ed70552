// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The world of one scenario: the processes, the network between them, a disk and a clock. Nothing
// in it is random or happens by itself, so a script always has the same output.
//
// Thread contract: one scenario, one world, one thread.

#ifndef BASIN_TESTS_SCENARIOS_WORLD_H_
#define BASIN_TESTS_SCENARIOS_WORLD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/scenarios/aggregator_process.h"
#include "tests/scenarios/describe.h"
#include "tests/scenarios/network.h"
#include "tests/scenarios/worker_process.h"

namespace basin::scenarios {

// How much is printed; each level includes those above it.
enum class Detail : uint8_t {
  kNothing = 0,
  kResults = 1,    // The results that trainers receive.
  kDecisions = 2,  // The reasons that the aggregator notes.
  kMessages = 3,   // The items that travel, except flow control.
  kAll = 4,        // Also heartbeats, credits and acknowledgements.
};

inline constexpr int kSessionStream = -1;

// Chooses among the things on their way. Empty fields mean any.
struct Choice {
  std::string from;
  std::string to;
  std::optional<int> stream;   // kSessionStream or a data stream.
  std::string only;            // A type, such as "Verdict".
  std::set<std::string> hold;  // Types that stay, with what is behind them on their connection.
  std::set<std::string> but;   // Processes that get nothing and whose messages stay.
};

class World {
 public:
  World();

  absl::Time now() const { return now_; }
  std::string Clock() const;  // The time since the beginning, such as "12.5s".
  Network& network() { return network_; }
  Names& names() { return names_; }

  // ---- output
  void set_detail(Detail detail) { detail_ = detail; }
  void Print(Detail detail, const std::string& line);
  // Reports something that must not happen in any script: prints it always, and fails the scenario.
  void Violation(const std::string& line);
  std::string TakeOutput() { return std::exchange(output_, {}); }
  bool violated() const { return violated_; }

  // ---- processes
  AggregatorProcess& StartAggregator(const std::string& name, aggregator::Config config);
  AggregatorProcess* FindAggregator(const std::string& name);  // The live one, or null.
  void CrashAggregator(AggregatorProcess& aggregator);
  WorkerProcess& StartWorker(const std::string& name, client::Config config);
  WorkerProcess* FindWorker(const std::string& name);  // The live one, or null.
  void KillWorker(WorkerProcess& worker);
  void Disconnect(WorkerProcess& worker, bool half_open);
  void LoseStream(WorkerProcess& worker, uint32_t stream);
  uint64_t NextNonce() { return ++nonces_; }
  // By position, which is that of the digits of a sum.
  const std::vector<std::string>& worker_names() const { return worker_names_; }

  // ---- delivery and time
  // Delivers the first chosen item in order of sending. Returns false if there is none.
  bool DeliverOne(const Choice& choice);
  // The same, but loses the item; its sender does not notice.
  bool LoseOne(const Choice& choice);
  // Flips bits of the next delivered frame that the checksums do not find.
  void CorruptNextFrame() { corrupt_next_ = true; }
  void Stabilize(const Choice& choice);
  void Sleep(absl::Duration duration, const Choice& choice);
  void TickEveryone();
  // Passes the time that closed sessions linger. Returns whether any did.
  bool LoseClosed();

  // ---- the disk, and what was delivered so far
  std::map<JobName, aggregator::SavedState> disk;
  bool disk_full = false;
  // In a scenario about a split brain, two versions of a round are no violation.
  bool forks_expected = false;
  // Compares the verdict with what others received of the same round. A name of a call that is used
  // again is another lane, with another index.
  void CheckSameVersion(const std::string& worker, const RunId& run, const std::string& lane,
                        LaneIndex index, RoundNumber round, uint64_t chain,
                        const std::string& result);

 private:
  // One candidate for delivery.
  struct Head {
    uint64_t number = 0;
    Link* link = nullptr;
    Dial* dial = nullptr;
    bool up = false;
    int stream = kSessionStream;
  };
  std::optional<Head> FirstHead(const Choice& choice);
  void ConsiderPipe(const Choice& choice, Link& link, bool up, int stream,
                    std::optional<Head>& best);
  Item TakeItem(const Head& head);
  void DeliverUp(Link& link, Item item, int stream);
  void DeliverDown(Link& link, Item item, int stream);
  void DeliverDial(const Dial& dial);
  void DeliverStreamDial(const Dial& dial);
  // The aggregator sees that the session stream has ended. With `ended`, the worker's process has
  // ended, so the aggregator sees the end of the data streams as well.
  void CloseSession(Link& link, bool ended);
  void PrintTravel(Detail detail, const std::string& from, const std::string& to,
                   const std::string& what);
  std::optional<absl::Time> NextDeadline();

  absl::Time now_;
  Detail detail_ = Detail::kMessages;
  std::string output_;
  bool violated_ = false;
  bool corrupt_next_ = false;
  uint64_t nonces_ = 0;
  Network network_;
  Names names_;
  std::vector<std::unique_ptr<AggregatorProcess>> aggregators_;  // Includes dead ones.
  std::vector<std::unique_ptr<WorkerProcess>> workers_;          // Includes dead ones.
  std::vector<std::string> worker_names_;
  std::map<std::tuple<RunId, std::string, LaneIndex, RoundNumber>, std::pair<uint64_t, std::string>>
      verdicts_;
};

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_WORLD_H_

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The world of one scenario: the processes, the network between them, a disk and a clock. Nothing
// in it is random or happens by itself, so a script has one output.
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
  kResults = 1,    // What trainers are told.
  kDecisions = 2,  // The reasons that the aggregator notes.
  kMessages = 3,   // What travels, except what only keeps the flow going.
  kAll = 4,        // Heartbeats, credits and acknowledgements too.
};

inline constexpr int kSessionStream = -1;

// Which of the things on their way are meant. Empty fields mean any.
struct Choice {
  std::string from;
  std::string to;
  std::optional<int> stream;   // kSessionStream or a data stream.
  std::string only;            // A type, such as "Verdict".
  std::set<std::string> hold;  // Types that stay, and what is behind them on their connection.
  std::set<std::string> but;   // Processes that get nothing and whose messages stay.
};

class World {
 public:
  World();

  absl::Time now() const { return now_; }
  std::string Clock() const;  // "12.5s" since the beginning.
  Network& network() { return network_; }
  Names& names() { return names_; }

  // ---- output
  void set_detail(Detail detail) { detail_ = detail; }
  void Say(Detail detail, const std::string& line);
  // Something that must not happen, whatever is scripted: printed always, and fails the scenario.
  void Violation(const std::string& line);
  std::string TakeOutput() { return std::exchange(output_, {}); }
  bool violated() const { return violated_; }

  // ---- processes
  AggregatorProcess& StartAggregator(const std::string& name, aggregator::Config config);
  AggregatorProcess* FindAggregator(const std::string& name);  // The one that lives; else null.
  void CrashAggregator(AggregatorProcess& aggregator);
  WorkerProcess& StartWorker(const std::string& name, client::Config config);
  WorkerProcess* FindWorker(const std::string& name);  // Likewise.
  void KillWorker(WorkerProcess& worker);
  void Disconnect(WorkerProcess& worker, bool half_open);
  void LoseStream(WorkerProcess& worker, uint32_t stream);
  uint64_t NextNonce() { return ++nonces_; }
  // By their position: the digits of a sum.
  const std::vector<std::string>& worker_names() const { return worker_names_; }

  // ---- delivery and time
  // Delivers the first of what is chosen, in order of sending. False when there is nothing.
  bool DeliverOne(const Choice& choice);
  // Likewise, but loses it: its sender does not notice.
  bool LoseOne(const Choice& choice);
  // Flips bits of the next frame that is delivered, on its way past the checksums.
  void CorruptNextFrame() { corrupt_next_ = true; }
  void Stabilize(const Choice& choice);
  void Sleep(absl::Duration duration, const Choice& choice);
  void TickEveryone();
  // Lets pass what closed sessions need to settle. Returns whether any did.
  bool Settle();

  // ---- the disk, and the memory of what was delivered
  std::map<JobName, aggregator::SavedState> disk;
  bool disk_full = false;
  // A scenario about a split brain says so: two versions of a round are then no violation.
  bool forks_expected = false;
  // Compares with what others were told of the same round.
  void CheckSameVersion(const std::string& worker, const RunId& run, const std::string& lane,
                        RoundNumber round, uint64_t chain, const std::string& result);

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
  // The aggregator sees that the session stream has ended, and with `ended`, that of a process that
  // has ended, the data streams too.
  void CloseSession(Link& link, bool ended);
  void SayTravel(Detail detail, const std::string& from, const std::string& to,
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
  std::vector<std::unique_ptr<AggregatorProcess>> aggregators_;  // Also those that are dead.
  std::vector<std::unique_ptr<WorkerProcess>> workers_;          // Likewise.
  std::vector<std::string> worker_names_;
  std::map<std::tuple<RunId, std::string, RoundNumber>, std::pair<uint64_t, std::string>> told_;
};

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_WORLD_H_

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Hours of three workers on machines that are loaded, paused and jittery, simulated: nobody may be
// lost. Then partitions: each must be noticed in less than the lease, and 98 % within the
// unreachable lease and one look.
//
//   unheard_hours HOURS [SEED]   // without a seed, a fresh one is drawn and printed
//
// The core and what the transport makes of the looks at the connections are the real ones. The
// kernels are a model: what they send again, how they probe, what they acknowledge. The lease is
// long, so that only the unreachable lease can lose a worker.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "aggregator/transport/unheard.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using Micros = int64_t;
constexpr Micros kMilli = 1000;
constexpr Micros kSecond = 1000 * kMilli;
constexpr Micros kLook = 50 * kMilli;  // OverheadGuard's.
constexpr int kWorkers = 3;
constexpr int kLinks = 3;  // The session and two data streams, as a client opens them.

enum class Kind : uint8_t {
  kHeartbeat,   // A worker's process sends one, if it runs.
  kArrive,      // A packet of the worker's machine arrives.
  kMessage,     // The same, with heartbeats.
  kResend,      // The kernel of the aggregator sends its data again.
  kKeepalive,   // It looks whether a connection is idle.
  kZeroWindow,  // It asks whether a receiver that was full has room.
  kResult,      // The aggregator sends data.
  kPause,       // A process is stopped, swapped out or starved,
  kFreeze,      // or nothing on its link arrives for a while.
  kWeather,     // The link of a worker changes.
  kLookAt,      // The transport looks at the connections.
  kHandle,      // The loop handles a heartbeat,
  kReport,      // or what the transport saw.
  kAggregatorPause,
  kMachinePause,  // The whole machine of the aggregator.
};

struct Happening {
  Micros at = 0;
  uint64_t order = 0;
  Kind kind = Kind::kLookAt;
  int worker = 0;
  int connection = 0;
  uint64_t number = 0;
  bool operator<(const Happening& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

// One connection of a worker, as the aggregator's kernel knows it.
struct Link {
  Micros heard = 0;
  uint32_t packets = 0;
  uint32_t probes = 0;
  bool in_flight = false;  // Data wait to be acknowledged.
  uint64_t sent = 0;       // Which.
  int resends = 0;
  bool full = false;  // The receiver has no room.
};

struct Machine {
  TestWorker* worker = nullptr;
  Link links[kLinks];
  Micros paused_until = 0;
  Micros frozen_until = 0;
  Micros up_busy_until = 0;  // The worker's kernel sends heartbeats again until then.
  Micros delay = 0;
  Micros jitter = 0;
  double loss = 0;
  bool partitioned = false;
  Micros last_heard() const {
    Micros last = 0;
    for (const Link& link : links) last = std::max(last, link.heard);
    return last;
  }
  bool AnyIdle() const {
    return std::any_of(std::begin(links), std::end(links),
                       [](const Link& link) { return !link.in_flight; });
  }
};

Config LongLease() {
  Config config;
  config.lease = absl::Hours(1);
  return config;
}

class Hours {
 public:
  explicit Hours(uint64_t seed) : random_(seed), cluster_(Settings(1, 4, kWorkers), LongLease()) {
    for (int i = 0; i < kWorkers; ++i)
      machines_[i].worker = &cluster_.Join(std::string(1, 'a' + i));
    begun_ = cluster_.now;
    for (int i = 0; i < kWorkers; ++i) {
      Weather(i);
      After(Between(0, 500 * kMilli), Kind::kHeartbeat, i);
      After(Between(0, 10 * kSecond), Kind::kPause, i);
      After(Between(0, 10 * kSecond), Kind::kFreeze, i);
      for (int link = 0; link < kLinks; ++link) {
        After(Between(0, kSecond), Kind::kResult, i, link);
        After(kSecond, Kind::kKeepalive, i, link);
      }
    }
    After(kLook, Kind::kLookAt);
    After(Between(0, 60 * kSecond), Kind::kAggregatorPause);
    After(Between(0, 60 * kSecond), Kind::kMachinePause);
  }

  // Runs for so long; returns the workers that were lost.
  size_t Run(Micros time) {
    const size_t lost = lost_;
    const Micros end = now_ + time;
    while (now_ < end) TakeNext();
    return lost_ - lost;
  }

  // Cuts off a worker until it is lost; returns the time since its last packet, without that in
  // which an answer could be on its way. 0: not in time.
  Micros Partition(int cut) {
    calm_ = true;
    for (Machine& machine : machines_) machine.loss = 0;
    Run(12 * kSecond + Between(0, kSecond));
    Machine& machine = machines_[cut];
    machine.partitioned = true;
    const size_t lost = lost_;
    const Micros give_up = now_ + 30 * kSecond;
    while (lost_ == lost && now_ < give_up) TakeNext();
    if (now_ >= give_up) Describe();
    const Micros on_its_way = 4 * machine.delay + machine.jitter;
    const Micros took = now_ < give_up ? now_ - machine.last_heard() - on_its_way : 0;
    machine.partitioned = false;
    calm_ = false;
    machine.worker->Forget();
    machine.worker->Connect();
    machine.worker->Ready();
    for (Link& link : machine.links) link = Link{now_};
    return took;
  }

  Micros longest_unheard() const { return longest_unheard_; }
  uint64_t pauses() const { return pauses_; }
  const std::string& last_loss() const { return last_loss_; }
  Micros now() const { return now_; }

 private:
  Micros Between(Micros least, Micros most) {
    return std::uniform_int_distribution<Micros>(least, most)(random_);
  }
  bool Chance(double share) { return std::uniform_real_distribution<>(0, 1)(random_) < share; }

  void At(Micros time, Kind kind, int worker = 0, int connection = 0, uint64_t number = 0) {
    queue_.push({std::max(time, now_), ++order_, kind, worker, connection, number});
  }
  void After(Micros time, Kind kind, int worker = 0, int connection = 0, uint64_t number = 0) {
    At(now_ + time, kind, worker, connection, number);
  }

  // The time that a packet takes one way, or no value if it is lost.
  bool Passes(const Machine& machine) { return !machine.partitioned && !Chance(machine.loss); }
  Micros Arrival(const Machine& machine) {
    return std::max(now_, machine.frozen_until) + machine.delay + Between(0, machine.jitter);
  }

  // The kernel of the aggregator sends something that the other kernel answers.
  void Demand(int i, int connection) {
    Machine& machine = machines_[i];
    ++machine.links[connection].packets;
    if (!Passes(machine) || !Passes(machine)) return;
    At(Arrival(machine) + machine.delay, Kind::kArrive, i, connection,
       machine.links[connection].sent);
  }
  void Probe(int i, int connection) {
    Link& link = machines_[i].links[connection];
    if (link.in_flight || link.full || now_ - link.heard < kSecond) return;
    ++link.probes;
    Demand(i, connection);
  }

  void TakeNext() {
    const Happening next = queue_.top();
    queue_.pop();
    now_ = next.at;
    Machine& machine = machines_[next.worker];
    Link& link = machine.links[next.connection];
    switch (next.kind) {
      case Kind::kHeartbeat: {
        if (now_ < machine.paused_until) return At(machine.paused_until, next.kind, next.worker);
        After(500 * kMilli + Between(0, 20 * kMilli), next.kind, next.worker);
        // Those that are written while others are sent again travel with them.
        if (now_ < machine.up_busy_until) return;
        Micros backoff = 200 * kMilli;
        Micros sent = now_;
        while (!Passes(machine) && sent < now_ + 20 * kSecond) {
          sent += backoff;
          backoff *= 2;
        }
        machine.up_busy_until = sent;
        return At(sent + Arrival(machine) - now_, Kind::kMessage, next.worker, 0);
      }
      case Kind::kMessage:
        if (machine.partitioned) return;
        // A machine that does not run hears nothing; the packet is sent again.
        if (now_ < deaf_until_) return At(deaf_until_ + 200 * kMilli, next.kind, next.worker);
        link.heard = now_;
        link.probes = 0;
        return At(stopped_until_, Kind::kHandle, next.worker);
      case Kind::kArrive:
        if (machine.partitioned || now_ < deaf_until_) return;
        link.heard = now_;
        link.probes = 0;
        if (next.number == link.sent) link.in_flight = false;
        return;
      case Kind::kResult:
        After(Between(50 * kMilli, 3 * kSecond), next.kind, next.worker, next.connection);
        // Nothing is sent to a worker whose contributions do not come.
        if (link.in_flight || link.full || machine.partitioned || now_ < deaf_until_) return;
        link.in_flight = true;
        ++link.sent;
        link.resends = 0;
        Demand(next.worker, next.connection);
        return After(200 * kMilli + 2 * machine.delay, Kind::kResend, next.worker, next.connection,
                     link.sent);
      case Kind::kResend:
        if (!link.in_flight || link.sent != next.number) return;
        if (now_ < deaf_until_) {
          return At(deaf_until_, next.kind, next.worker, next.connection, next.number);
        }
        Demand(next.worker, next.connection);
        ++link.resends;
        return After((200 * kMilli + 2 * machine.delay) << std::min(link.resends, 9), next.kind,
                     next.worker, next.connection, next.number);
      case Kind::kKeepalive:
        if (now_ >= deaf_until_) Probe(next.worker, next.connection);
        return After(kSecond, next.kind, next.worker, next.connection);
      case Kind::kZeroWindow:
        if (now_ >= machine.paused_until) {
          link.full = false;
          return;
        }
        if (now_ < deaf_until_) {
          return At(deaf_until_, next.kind, next.worker, next.connection, next.number);
        }
        Demand(next.worker, next.connection);
        return After(next.number * kMilli, next.kind, next.worker, next.connection,
                     2 * next.number);
      case Kind::kPause:
        After(Between(2 * kSecond, 30 * kSecond), next.kind, next.worker);
        if (calm_) return;
        ++pauses_;
        machine.paused_until = now_ + Between(100 * kMilli, 4500 * kMilli);
        if (Chance(0.5) && !machine.links[1].in_flight) {
          machine.links[1].full = true;
          After(200 * kMilli, Kind::kZeroWindow, next.worker, 1, 400);
        }
        return;
      case Kind::kFreeze:
        After(Between(kSecond, 20 * kSecond), next.kind, next.worker);
        if (!calm_) machine.frozen_until = now_ + Between(0, 400 * kMilli);
        return;
      case Kind::kWeather:
        return Weather(next.worker);
      case Kind::kLookAt: {
        if (now_ < stopped_until_) return At(stopped_until_, next.kind);
        const bool late = !calm_ && Chance(0.01);
        After(kLook + (late ? Between(0, 400 * kMilli) : Between(0, kMilli)), next.kind);
        return Look();
      }
      case Kind::kHandle:
        if (now_ < stopped_until_) return At(stopped_until_, next.kind, next.worker);
        SetClock();
        if (machine.worker->session != 0) machine.worker->Send(Heartbeat{});
        return Settle();
      case Kind::kReport: {
        if (now_ < stopped_until_) return At(stopped_until_, next.kind, 0, 0, next.number);
        SetClock();
        const auto seen = seen_.extract(static_cast<Micros>(next.number));
        cluster_.Step(SessionsUnheard{seen.mapped(), absl::Microseconds(now_ - seen.key())});
        return Settle();
      }
      case Kind::kAggregatorPause:
        After(Between(10 * kSecond, 200 * kSecond), next.kind);
        // A machine that is paused as a whole stays so.
        if (!calm_) {
          stopped_until_ = std::max(deaf_until_, now_ + Between(100 * kMilli, 4500 * kMilli));
        }
        return;
      case Kind::kMachinePause:
        After(Between(60 * kSecond, 600 * kSecond), next.kind);
        if (!calm_) deaf_until_ = stopped_until_ = now_ + Between(100 * kMilli, 4500 * kMilli);
        return;
    }
  }

  void Weather(int i) {
    Machine& machine = machines_[i];
    constexpr double kLosses[] = {0, 0, 0.01, 0.05, 0.2};
    machine.loss = calm_ ? 0 : kLosses[Between(0, 4)];
    machine.delay = Between(50, Chance(0.2) ? 80 * kMilli : kMilli);
    machine.jitter = Between(0, Chance(0.3) ? 100 * kMilli : kMilli);
    After(Between(60 * kSecond, 600 * kSecond), Kind::kWeather, i);
  }

  void Look() {
    unheard_.Begin(Unheard::Clock::time_point(std::chrono::microseconds(now_)));
    for (int i = 0; i < kWorkers; ++i) {
      if (machines_[i].worker->session == 0) continue;
      for (int connection = 0; connection < kLinks; ++connection) {
        const Link& link = machines_[i].links[connection];
        KernelView view;
        view.unheard = std::chrono::milliseconds((now_ - link.heard) / kMilli);
        view.packets = link.packets;
        view.probes = link.probes;
        view.round_trip =
            std::chrono::milliseconds((2 * machines_[i].delay + machines_[i].jitter / 2) / kMilli);
        unheard_.Add(machines_[i].worker->session, view, kLinks * i + connection);
      }
    }
    std::vector<UnheardSession> sessions = unheard_.End();
    if (sessions.empty()) return;
    for (const UnheardSession& one : sessions) {
      longest_unheard_ = std::max<Micros>(longest_unheard_, absl::ToInt64Microseconds(one.unheard));
    }
    seen_[now_] = std::move(sessions);
    // The loop may be late.
    const bool late = !calm_ && Chance(0.1);
    After(late ? Between(0, 300 * kMilli) : Between(0, kMilli), Kind::kReport, 0, 0,
          static_cast<uint64_t>(now_));
  }

  void Settle() {
    if (cluster_.core->NextDeadline() <= cluster_.now) cluster_.Step(Tick{});
    if (const size_t lost = cluster_.Notes(NoteKind::kWorkerLost); lost > 0) {
      lost_ += lost;
      last_loss_ = cluster_.NoteText(NoteKind::kWorkerLost);
      Describe();
    }
    cluster_.ClearLog();
  }
  // Adds the state of all machines to the text of the loss.
  void Describe() {
    for (const Machine& machine : machines_) {
      absl::StrAppend(&last_loss_, "\n  ", machine.worker->id, ": loss ", machine.loss, ", delay ",
                      machine.delay / kMilli, " to ", (machine.delay + machine.jitter) / kMilli,
                      " ms");
      const auto until = [&](const char* what, Micros time) {
        if (time > now_ - 2 * kSecond) {
          absl::StrAppend(&last_loss_, ", ", what, " until ", (time - now_) / kMilli, " ms");
        }
      };
      until("process paused", machine.paused_until);
      until("link frozen", machine.frozen_until);
      until("sends again", machine.up_busy_until);
      for (const Link& link : machine.links) {
        absl::StrAppend(&last_loss_, link.in_flight ? "; data in flight" : "; idle",
                        link.full ? ", receiver full" : "", ", heard ",
                        (link.heard - now_) / kMilli, " ms, ", link.probes, " probes");
      }
    }
  }
  void SetClock() { cluster_.now = std::max(cluster_.now, begun_ + absl::Microseconds(now_)); }

  std::mt19937_64 random_;
  Cluster cluster_;
  absl::Time begun_;
  Machine machines_[kWorkers];
  std::priority_queue<Happening> queue_;
  uint64_t order_ = 0;
  Micros now_ = 0;
  Micros stopped_until_ = 0;                            // The aggregator's process.
  Micros deaf_until_ = 0;                               // Its machine.
  bool calm_ = false;                                   // No pauses, but for losses and delays.
  std::map<Micros, std::vector<UnheardSession>> seen_;  // By the time of the look; not handled yet.
  Micros longest_unheard_ = 0;
  size_t lost_ = 0;
  std::string last_loss_;
  uint64_t pauses_ = 0;
  Unheard unheard_{[this](int descriptor) { Probe(descriptor / kLinks, descriptor % kLinks); }};
};

int Main(int hours, uint64_t seed) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Hours run(seed);
  size_t lost = 0;
  for (int hour = 0; hour < hours && lost == 0; ++hour) lost += run.Run(3600 * kSecond);
  std::printf(
      "%.1f hours, %llu pauses of processes, %zu workers lost; the longest time unheard "
      "was %.2f s\n",
      static_cast<double>(run.now()) / 3600 / kSecond,
      static_cast<unsigned long long>(run.pauses()), lost,
      static_cast<double>(run.longest_unheard()) / kSecond);
  if (lost > 0) std::printf("FALSE: %s\n", run.last_loss().c_str());
  const int partitions = std::max(20, hours);
  Micros longest = 0;
  // One look, and what is rounded. Where data were on their way on most connections, fewer of them
  // can probe, and it takes longer.
  constexpr Micros kMost = 1500 * kMilli + kLook + 20 * kMilli;
  int late = 0;
  int missed = 0;
  for (int i = 0; i < partitions; ++i) {
    const Micros took = run.Partition(i % kWorkers);
    missed += took == 0;
    if (took == 0) break;
    longest = std::max(longest, took);
    late += took > kMost;
  }
  if (missed > 0) std::printf("MISSED: %s\n", run.last_loss().c_str());
  std::printf("%d partitions, %d not noticed, %d later than one look; the longest took %.3f s\n",
              partitions, missed, late, static_cast<double>(longest) / kSecond);
  return lost == 0 && missed == 0 && late <= partitions / 50 && longest < 5 * kSecond &&
                 !testing::Test::HasFailure()
             ? 0
             : 1;
}

}  // namespace
}  // namespace basin::aggregator

int main(int argc, char** argv) {
  int hours = 1;
  uint64_t seed = std::random_device()();
  if (argc > 1 && !absl::SimpleAtoi(argv[1], &hours)) return 2;
  if (argc > 2 && !absl::SimpleAtoi(argv[2], &seed)) return 2;
  return basin::aggregator::Main(hours, seed);
}

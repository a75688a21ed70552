// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The connection to the aggregator: when it is opened, greeted, given up and tried again, and the
// heartbeat that keeps it alive. Its phases are the table below; a pair of phase and input that is
// not in the table is not for this session and has no effect. The connector knows the address, and
// client_session.cc which errors are final.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_SESSION_H_
#define BASIN_CLIENT_CORE_SESSION_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "client/core/action.h"
#include "client/core/config.h"
#include "client/core/streams.h"

namespace basin::client {

enum class SessionPhase : uint8_t {
  kNew = 0,         // Nothing was opened yet.
  kConnecting = 1,  // OpenSession is on its way.
  kGreeting = 2,    // The hello was sent; it may be held while the aggregator recovers.
  kWelcomed = 3,    // In session.
  kOver = 4,        // For good: left, or fatal.
};

enum class SessionInput : uint8_t {
  kStart = 0,    // The first event of whatever kind.
  kUp = 1,       // The session stream is open.
  kWelcome = 2,  // The aggregator has taken the worker in.
  kDown = 3,     // The stream could not be opened, or was lost.
  kRetry = 4,    // The aggregator ended it, or broke the protocol: worth another try, later.
  kAgain = 5,    // The incarnation has ended: try another at once.
  kStop = 6,     // Left, or fatal.
};

struct SessionTransition {
  SessionPhase from;
  SessionInput input;
  SessionPhase to;
  const char* what;  // What is done.
};

// "Backoff" is no delay after a welcome, then 0.1 s doubling to 2 s, with jitter. With several
// addresses, each is tried once without a delay, and then it doubles after four attempts at each,
// up to 1 s divided by their number.
inline constexpr SessionTransition kSessionTransitions[] = {
    // from                     input                   to
    {SessionPhase::kNew, SessionInput::kStart, SessionPhase::kConnecting, "OpenSession at once"},
    {SessionPhase::kNew, SessionInput::kStop, SessionPhase::kOver, "nothing"},
    {SessionPhase::kConnecting, SessionInput::kUp, SessionPhase::kGreeting, "Hello"},
    {SessionPhase::kConnecting, SessionInput::kDown, SessionPhase::kConnecting,
     "OpenSession with backoff"},
    {SessionPhase::kConnecting, SessionInput::kAgain, SessionPhase::kConnecting,
     "CloseSession, OpenSession at once"},
    {SessionPhase::kConnecting, SessionInput::kStop, SessionPhase::kOver, "CloseSession"},
    {SessionPhase::kGreeting, SessionInput::kWelcome, SessionPhase::kWelcomed,
     "OpenStream for each stream, registrations, rounds in flight, values"},
    {SessionPhase::kGreeting, SessionInput::kDown, SessionPhase::kConnecting,
     "OpenSession with backoff"},
    {SessionPhase::kGreeting, SessionInput::kRetry, SessionPhase::kConnecting,
     "CloseSession, OpenSession with backoff, never at once"},
    {SessionPhase::kGreeting, SessionInput::kAgain, SessionPhase::kConnecting,
     "CloseSession, OpenSession at once"},
    {SessionPhase::kGreeting, SessionInput::kStop, SessionPhase::kOver, "CloseSession"},
    {SessionPhase::kWelcomed, SessionInput::kDown, SessionPhase::kConnecting,
     "OpenSession at once"},
    {SessionPhase::kWelcomed, SessionInput::kRetry, SessionPhase::kConnecting,
     "CloseSession, OpenSession with backoff, never at once"},
    {SessionPhase::kWelcomed, SessionInput::kAgain, SessionPhase::kConnecting,
     "CloseSession, OpenSession at once"},
    {SessionPhase::kWelcomed, SessionInput::kStop, SessionPhase::kOver, "CloseSession"},
};

class Session {
 public:
  explicit Session(const Config& config)
      : streams_(config.streams, config.follows_link), jitter_(config.jitter_seed) {}

  SessionPhase phase() const { return phase_; }
  bool welcomed() const { return phase_ == SessionPhase::kWelcomed; }
  SessionToken token() const { return token_; }
  const Streams& streams() const { return streams_; }
  Streams& streams() { return streams_; }
  // Why the worker is not in session, or was not the last time.
  const Error& trouble() const { return trouble_; }
  uint32_t frame_chunks() const { return frame_chunks_; }
  bool lists() const { return lists_; }  // Frames of several tensors are in use.
  // The aggregator knows that workers may stand for several trainers.
  bool knows_ranks() const { return knows_ranks_; }
  bool knows_samples() const { return knows_samples_; }  // It leases samples, ...
  bool knows_steps() const { return knows_steps_; }      // ... also in steps of a global batch.
  uint64_t progress() const { return progress_; }

  // Takes one input; returns whether the table has it. The caller sends the hello on kUp, and the
  // messages after the welcome. `trouble` is the reason of all inputs but kStart, kUp and kWelcome.
  bool Apply(const Config& config, SessionInput input, Error trouble, std::vector<Action>& actions);

  // The settings of the session in the welcome. REQUIRES: welcomed().
  void Configure(absl::Time now, const Welcome& welcome, std::vector<Action>& actions);

  // A shard has come, or is gone. REQUIRES: welcomed(), and nothing is in flight to one that is
  // gone.
  void AddShard(const PlacedShard& shard, std::vector<Action>& actions);
  void RemoveShard(ShardId shard, const std::string& reason, std::vector<Action>& actions);

  void StreamUp(uint32_t stream, absl::Time now) { streams_.Up(stream, now); }
  void StreamDown(const Config& config, absl::Time now, uint32_t stream, const std::string& reason,
                  std::vector<Action>& actions);

  // The first session cannot be opened. A known cause is a better text than this.
  void NoteSilence(Error trouble) {
    if (trouble_.code == ErrorCode::kOk) trouble_ = std::move(trouble);
  }

  void Progress() { ++progress_; }
  bool BeatIsDue(absl::Time now) const { return welcomed() && now >= next_beat_; }
  // REQUIRES: BeatIsDue(now).
  void Beat(absl::Time now, std::vector<RoundWait> waits, std::vector<Action>& actions);
  absl::Time NextDeadline() const { return welcomed() ? next_beat_ : absl::InfiniteFuture(); }

  auto Fields() const {
    return std::tie(phase_, streams_, jitter_, failures_, trouble_, token_, frame_chunks_, lists_,
                    knows_ranks_, knows_samples_, knows_steps_, heartbeat_, next_beat_, progress_);
  }

 private:
  // Between half of the backoff after `failures` and all of it.
  absl::Duration Backoff(const Config& config, uint32_t failures);
  void OpenStreams(ShardId shard, std::vector<Action>& actions) const;
  OpenStream Open(uint32_t stream, absl::Duration delay) const;

  SessionPhase phase_ = SessionPhase::kNew;
  Streams streams_;
  uint64_t jitter_;        // State of the generator (SplitMix64).
  uint32_t failures_ = 0;  // In a row since the last welcome.
  Error trouble_;
  SessionToken token_ = 0;
  uint32_t frame_chunks_ = 1;
  bool lists_ = false;
  bool knows_ranks_ = false;
  bool knows_samples_ = false;
  bool knows_steps_ = false;
  absl::Duration heartbeat_;
  absl::Time next_beat_ = absl::InfiniteFuture();
  uint64_t progress_ = 0;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_SESSION_H_

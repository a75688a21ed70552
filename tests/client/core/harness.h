// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One client driven by hand: the test plays the runner, the trainer and the aggregator.
//
// The job has the workers w-0 (the client), w-1 and w-2. Unless a test changes it, the aggregator
// is in term 5, and the lane is "g" with index 3 and has the tensors "a" (3 chunks, the last one
// short), "b" (1 chunk) and "c" (empty).

#ifndef BASIN_TESTS_CLIENT_CORE_HARNESS_H_
#define BASIN_TESTS_CLIENT_CORE_HARNESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "client/core/client.h"

namespace basin::client {

inline constexpr LaneIndex kLane = 3;
inline constexpr Term kTerm = 5;
inline constexpr uint64_t kFrameBytes = 2 * kChunkBytes;
inline constexpr uint64_t kWindow = 64 * kChunkBytes;
inline constexpr TensorHandle kA = 0;
inline constexpr TensorHandle kB = 1;
inline constexpr TensorHandle kC = 2;

// The digest of a chunk that the aggregator computed, and that of a tensor that w-0 pushes.
inline Digest ResultDigest(TensorIndex tensor, uint32_t chunk) {
  return 1000 * (tensor + 1) + chunk;
}
inline Digest PushDigest(TensorHandle tensor) { return 70 + tensor; }

TensorSpec F32(std::string name, uint64_t elements);
std::vector<TensorSpec> Model();  // Has the tensors a, b and c.
Config TestConfig();

// The actions of one Step.
class Actions {
 public:
  std::vector<Action> all;

  template <typename T>
  std::vector<T> Of() const {
    std::vector<T> found;
    for (const Action& action : all) {
      if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
    }
    return found;
  }
  // The messages of one type, in order.
  template <typename T>
  std::vector<T> Sent() const {
    std::vector<T> found;
    for (const Send& send : Of<Send>()) {
      if (const T* one = std::get_if<T>(&send.message)) found.push_back(*one);
    }
    return found;
  }
  template <typename T>
  bool Has() const {
    return !Of<T>().empty();
  }
  template <typename T>
  bool HasSent() const {
    return !Sent<T>().empty();
  }
  // The only action or message of a type; the test fails if there is none or more than one.
  template <typename T>
  T One() const {
    return Only(Of<T>());
  }
  template <typename T>
  T OneSent() const {
    return Only(Sent<T>());
  }
  // The names of all messages, in order, such as "Begin Skip Commit".
  std::string MessageNames() const;

 private:
  template <typename T>
  static T Only(std::vector<T> found);
};

// The ranges of the contribution frames, in order.
std::vector<ChunkRange> Ranges(const Actions& actions);

void ReportCount(size_t count, const char* type);

template <typename T>
T Actions::Only(std::vector<T> found) {
  if (found.size() != 1) ReportCount(found.size(), __PRETTY_FUNCTION__);
  return found.empty() ? T{} : std::move(found[0]);
}

class Harness {
 public:
  explicit Harness(Config config = TestConfig()) : client(std::move(config)) {}

  // Passes one event at the current time.
  Actions Do(const Event& event);
  Actions Receive(ToWorker message) { return Do(MessageReceived{std::move(message)}); }
  // Moves the clock, and ticks.
  Actions Pass(absl::Duration duration);

  // ---- steps to a member with a lane
  Welcome MakeWelcome(Role role = Role::kJoiner) const;
  // Opens the session and its streams; returns the actions of the welcome.
  Actions Connect(const Welcome& welcome);
  Actions Connect() { return Connect(MakeWelcome()); }
  void StreamsUp();
  LaneLayout MakeLayout(uint32_t first = 0, RoundNumber round = 1) const;
  Membership Members(uint64_t counter = 1) const;  // Has the members w-0, w-1 and w-2.
  void RegisterModel();
  // Connects, registers the model, and becomes a member from round 1.
  void BecomeMember();

  // ---- rounds
  void Begin() { Do(BeginRound{0, Average(), {}, 17, {}}); }
  static RoundSpec Average();
  Actions PushOne(TensorHandle tensor) {
    return Do(PushTensor{0, tensor, PushDigest(tensor), 1.0});
  }
  // Begins, pushes all tensors and commits; the aggregator acknowledges nothing.
  void Contribute();
  Credit Acked(std::vector<ChunkRange> ranges, RoundNumber round = 1) const {
    return Credit{kLane, round, kWindow, std::move(ranges), {}};
  }

  // The value of a round of w-0, w-1 and w-2 over all tensors, at a ballot of this term.
  RoundValue Value() const;
  RoundValue AbortedValue() const;
  Prepared MakePrepared(uint64_t attempt = 1, RoundNumber round = 1) const;
  ResultReceived Result(ChunkRange range, uint64_t attempt = 1, RoundNumber round = 1) const;
  // The verdict that follows from the messages that the client has received so far.
  Verdict MakeVerdict(const RoundValue& value, uint64_t attempt = 1) const;
  void ReceiveAllResults(uint64_t attempt = 1, RoundNumber round = 1);
  // Receives all results and the value; returns the actions of the value.
  Actions Stage(RoundNumber round = 1);
  // Contributes and receives everything up to the verdict; returns the actions of the verdict.
  Actions FinishRound();

  const Lane& lane() const { return client.lanes()[0]; }

  Client client;
  absl::Time now = absl::FromUnixSeconds(1000);
};

}  // namespace basin::client

#endif  // BASIN_TESTS_CLIENT_CORE_HARNESS_H_

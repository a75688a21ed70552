// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What is held for the core between its actions, and how the actions on it are carried out: chunks
// of rounds, blobs, and frames that may be sent again. The engine's runner holds payloads
// (payloads.h); the simulator, the explorer, the scenarios and the core's tests hold a stand-in for
// each chunk (tests/world/aggregator_shell.h), and carry out actions by the same code.
//
// `Bytes` is what differs: what a chunk, a frame and a reduction are made of. payloads.h has its
// members. If one of them returns an error, core and holder disagree about what is held. Shared
// memory for results, connections, threads and files are in runner.h.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_ENGINE_HELD_H_
#define BASIN_AGGREGATOR_ENGINE_HELD_H_

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "aggregator/core/action.h"

namespace basin::aggregator {

template <typename Bytes>
class Held {
 public:
  using Arrived = typename Bytes::Arrived;
  using Frame = typename Bytes::Frame;
  using Reduction = typename Bytes::Reduction;
  using Round = typename Bytes::Round;
  using Tensor = typename Bytes::Tensor;
  using RoundKey = std::tuple<JobId, LaneIndex, RoundNumber>;

  // Carries out an action that is about bytes: those below, and no other. `Host` has
  //
  //   void SendOn(absl::Span<const StreamId> streams, const Frame& frame);
  //   absl::Status Start(Round& round, const StartAttempt& start);
  //   void Started(Reduction reduction);  // It is under way until Hold.
  template <typename Action, typename Host>
  absl::Status CarryOut(const Action& action, const Arrived* arrived, Host& host);

  template <typename Action>
  static constexpr bool kTakes =
      std::is_same_v<Action, NameTensors> || std::is_same_v<Action, IdleLane> ||
      std::is_same_v<Action, EndJob> || std::is_same_v<Action, KeepChunks> ||
      std::is_same_v<Action, DiscardChunks> || std::is_same_v<Action, StartAttempt> ||
      std::is_same_v<Action, Reduce> || std::is_same_v<Action, Publish> ||
      std::is_same_v<Action, ReleaseResult> || std::is_same_v<Action, RelayResult> ||
      std::is_same_v<Action, EndRound> || std::is_same_v<Action, RelayBlob> ||
      std::is_same_v<Action, SendBlob> || std::is_same_v<Action, DropBlob> ||
      std::is_same_v<Action, SendFrame> || std::is_same_v<Action, ForgetFrames>;

  // The reduction of `what` has ended. Its result is held if the round goes on.
  template <typename Ended>
  void Hold(const Reduce& what, const Ended& reduction) {
    if (Round* const round = Find(KeyOf(what))) Bytes::Hold(*round, reduction);
  }

  // Held result chunks, as one frame.
  absl::StatusOr<Frame> FrameOf(const Publish& publish, const ChunkRanges& ranges) const;
  absl::StatusOr<Frame> FrameOf(const SendBlob& send) const;

  // Null: there is none.
  const Round* FindRound(JobId job, LaneIndex lane, RoundNumber round) const {
    const auto found = rounds_.find({job, lane, round});
    return found == rounds_.end() ? nullptr : &found->second;
  }
  const Tensor* FindTensor(JobId job, LaneIndex lane, TensorIndex tensor) const;
  // Empty: the lane has none.
  const std::vector<Tensor>& TensorsOf(JobId job, LaneIndex lane) const {
    static const std::vector<Tensor> none;
    const auto found = tensors_.find({job, lane});
    return found == tensors_.end() ? none : found->second;
  }

  const std::map<RoundKey, Round>& rounds() const { return rounds_; }
  size_t blobs() const { return blobs_.size(); }
  size_t frames() const { return frames_.size(); }

  auto Fields() const { return std::tie(tensors_, rounds_, blobs_, frames_); }

 private:
  using BlobId = std::tuple<JobId, std::string, std::string, uint64_t>;
  template <typename Action>
  static RoundKey KeyOf(const Action& action) {
    return {action.job, action.lane, action.round};
  }
  static BlobId IdOf(JobId job, const BlobKey& key) {
    return {job, key.lane, key.tensor, key.version};
  }
  template <typename Action>
  static absl::Status Lacks(const Action& action, const char* what) {
    return absl::InternalError(
        absl::StrCat(what, " (lane ", action.lane, ", round ", action.round, ")"));
  }
  Round* Find(const RoundKey& key) {
    const auto found = rounds_.find(key);
    return found == rounds_.end() ? nullptr : &found->second;
  }

  absl::Status Do(const NameTensors& names);
  absl::Status Do(const EndJob& end);
  template <typename Host>
  absl::Status Do(const Reduce& reduce, Host& host);
  template <typename Host>
  absl::Status Do(const Publish& publish, Host& host);
  // Sends a frame on its route, and keeps it if the route requires that.
  template <typename Host>
  absl::Status Send(const Route& route, absl::StatusOr<Frame> frame, Host& host);

  std::map<std::pair<JobId, LaneIndex>, std::vector<Tensor>> tensors_;
  std::map<RoundKey, Round> rounds_;
  std::map<BlobId, typename Bytes::Blob> blobs_;
  std::map<FrameId, Frame> frames_;  // Those that may be sent again.
};

template <typename Bytes>
template <typename Action, typename Host>
absl::Status Held<Bytes>::CarryOut(const Action& action, const Arrived* arrived, Host& host) {
  if constexpr (std::is_same_v<Action, NameTensors> || std::is_same_v<Action, EndJob>) {
    return Do(action);
  } else if constexpr (std::is_same_v<Action, Reduce> || std::is_same_v<Action, Publish>) {
    return Do(action, host);
  } else if constexpr (std::is_same_v<Action, KeepChunks>) {
    return Bytes::Keep(rounds_[KeyOf(action)], action, arrived);
  } else if constexpr (std::is_same_v<Action, DiscardChunks>) {
    return Bytes::Discard(rounds_[KeyOf(action)], action);
  } else if constexpr (std::is_same_v<Action, StartAttempt>) {
    return host.Start(rounds_[KeyOf(action)], action);
  } else if constexpr (std::is_same_v<Action, ReleaseResult>) {
    Round* const round = Find(KeyOf(action));
    return round == nullptr ? Lacks(action, "it frees a result that it lacks")
                            : Bytes::Release(*round, action);
  } else if constexpr (std::is_same_v<Action, EndRound>) {
    rounds_.erase(KeyOf(action));
    return absl::OkStatus();
  } else if constexpr (std::is_same_v<Action, RelayResult>) {
    return Send(action.route, Bytes::Relayed(action, arrived), host);
  } else if constexpr (std::is_same_v<Action, RelayBlob>) {
    absl::StatusOr<Frame> frame = Bytes::Relayed(action, arrived);
    if (frame.ok() && action.cache) {
      Bytes::Keep(blobs_[IdOf(action.job, action.key)], action, *arrived);
    }
    return Send(action.route, std::move(frame), host);
  } else if constexpr (std::is_same_v<Action, SendBlob>) {
    return Send(action.route, FrameOf(action), host);
  } else if constexpr (std::is_same_v<Action, DropBlob>) {
    if (blobs_.erase(IdOf(action.job, action.key)) > 0) return absl::OkStatus();
    return absl::InternalError("it drops a blob that it lacks");
  } else if constexpr (std::is_same_v<Action, SendFrame>) {
    const auto kept = frames_.find(action.frame);
    if (kept == frames_.end()) return absl::InternalError("it sends a frame that it does not keep");
    host.SendOn({&action.stream, 1}, kept->second);
    return absl::OkStatus();
  } else if constexpr (std::is_same_v<Action, ForgetFrames>) {
    bool kept = true;
    for (const FrameId frame : action.frames) kept = frames_.erase(frame) > 0 && kept;
    if (kept) return absl::OkStatus();
    return absl::InternalError("it forgets a frame that it does not keep");
  } else {
    static_assert(std::is_same_v<Action, IdleLane>);
    return absl::OkStatus();  // Nothing that is held here depends on it.
  }
}

template <typename Bytes>
absl::Status Held<Bytes>::Do(const NameTensors& names) {
  std::vector<Tensor>& tensors = tensors_[{names.job, names.lane}];
  if (names.first > tensors.size()) {
    return absl::InternalError(absl::StrCat("it names tensors from ", names.first, " of lane ",
                                            names.lane, ", which has ", tensors.size()));
  }
  tensors.erase(tensors.begin() + names.first, tensors.end());
  for (const TensorSpec& spec : names.tensors) tensors.push_back(Bytes::TensorOf(spec));
  if (tensors.empty()) tensors_.erase({names.job, names.lane});  // The lane may be gone.
  return absl::OkStatus();
}

template <typename Bytes>
absl::Status Held<Bytes>::Do(const EndJob& end) {
  const auto forget = [&](auto& held) {
    for (auto it = held.begin(); it != held.end();) {
      it = std::get<0>(it->first) == end.job ? held.erase(it) : std::next(it);
    }
  };
  forget(tensors_);
  forget(blobs_);
  forget(rounds_);
  return absl::OkStatus();
}

template <typename Bytes>
template <typename Host>
absl::Status Held<Bytes>::Do(const Reduce& reduce, Host& host) {
  Round* const round = Find(KeyOf(reduce));
  if (round == nullptr) return Lacks(reduce, "it reduces a round that it has not started");
  for (const ChunkRange& range : reduce.ranges) {
    if (FindTensor(reduce.job, reduce.lane, range.tensor) == nullptr) {
      return Lacks(reduce, "it reduces a tensor that it has not named");
    }
  }
  absl::StatusOr<Reduction> reduction = Bytes::Take(*round, reduce);
  if (!reduction.ok()) return reduction.status();
  host.Started(*std::move(reduction));
  return absl::OkStatus();
}

template <typename Bytes>
template <typename Host>
absl::Status Held<Bytes>::Do(const Publish& publish, Host& host) {
  for (const Route& route : publish.routes) {
    absl::Status status = Send(route, FrameOf(publish, route.ranges), host);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

template <typename Bytes>
template <typename Host>
absl::Status Held<Bytes>::Send(const Route& route, absl::StatusOr<Frame> frame, Host& host) {
  if (!frame.ok()) return frame.status();
  if (!route.streams.empty()) host.SendOn(route.streams, *frame);
  if (route.frame != 0 && !frames_.emplace(route.frame, *std::move(frame)).second) {
    return absl::InternalError("it keeps two frames under one name");
  }
  return absl::OkStatus();
}

template <typename Bytes>
auto Held<Bytes>::FrameOf(const Publish& publish, const ChunkRanges& ranges) const
    -> absl::StatusOr<Frame> {
  const Round* const round = FindRound(publish.job, publish.lane, publish.round);
  if (round == nullptr) return Lacks(publish, "it publishes a result that it lacks");
  return Bytes::FrameOf(*round, publish, ranges);
}

template <typename Bytes>
auto Held<Bytes>::FrameOf(const SendBlob& send) const -> absl::StatusOr<Frame> {
  const auto blob = blobs_.find(IdOf(send.job, send.key));
  if (blob == blobs_.end()) return absl::InternalError("it sends a blob that it lacks");
  return Bytes::FrameOf(blob->second, send);
}

template <typename Bytes>
auto Held<Bytes>::FindTensor(JobId job, LaneIndex lane, TensorIndex tensor) const -> const Tensor* {
  const std::vector<Tensor>& tensors = TensorsOf(job, lane);
  return tensor < tensors.size() ? &tensors[tensor] : nullptr;
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_HELD_H_

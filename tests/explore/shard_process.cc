// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/shard_process.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace basin::explore {
namespace {

constexpr char kEndpoint[] = "shard:";

}  // namespace

std::string EndpointOf(uint32_t slot) { return absl::StrCat(kEndpoint, slot); }

uint32_t SlotOf(const std::string& endpoint) {
  uint32_t slot = 0;
  return absl::SimpleAtoi(absl::StripPrefix(endpoint, kEndpoint), &slot) ? slot : 0;
}

struct ShardProcess::Host {
  ShardProcess& shard;
  std::vector<AggregatorOutput>& outputs;
  void SendOn(aggregator::StreamId stream, const Shell::Frame& frame) {
    if (!shard.Has(stream)) return;
    outputs.push_back(
        {AggregatorOutput::Kind::kShardFrame, stream, Item(std::get<ResultFrame>(frame))});
  }
  void Started(Reduction reduction) { shard.reductions_.push_back(std::move(reduction)); }
};

void ShardProcess::Open(aggregator::StreamId stream, SessionToken token) {
  streams_[stream] = std::nullopt;
  reports_.push_back(Opened{stream, token});
}

void ShardProcess::Close(aggregator::StreamId stream) {
  streams_.erase(stream);
  reports_.push_back(Lost{stream});
}

void ShardProcess::Take(aggregator::StreamId stream, const PushFrame& frame) {
  reports_.push_back(Arrived{*streams_.at(stream), frame});
}

void ShardProcess::Drain() {
  draining_ = true;
  reports_.push_back(Draining{});
}

void ShardProcess::Die() {
  const ShardId id = id_;
  *this = ShardProcess(id);
  alive_ = false;
}

void ShardProcess::FinishReduction() {
  reports_.push_back(std::move(reductions_.front()));
  reductions_.erase(reductions_.begin());
}

ShardProcess::Report ShardProcess::TakeReport() {
  Report report = std::move(reports_.front());
  reports_.pop_front();
  return report;
}

aggregator::ReduceDone ShardProcess::Finish(const Reduction& reduction) {
  aggregator::ReduceDone done = shell_.Finish(reduction);
  done.shard = id_;
  return done;
}

absl::Status ShardProcess::CarryOut(aggregator::Action& action, const PushFrame* arrived,
                                    std::vector<AggregatorOutput>& outputs) {
  using Kind = AggregatorOutput::Kind;
  return std::visit(
      [&](auto& what) {
        using What = std::decay_t<decltype(what)>;
        if constexpr (Shell::kTakes<What>) {
          Host host{*this, outputs};
          return shell_.CarryOut(what, Shell::Arrived{arrived, nullptr}, host);
        } else if constexpr (std::is_same_v<What, aggregator::AcceptStream>) {
          const auto stream = streams_.find(what.stream);
          if (stream == streams_.end()) return absl::OkStatus();
          stream->second = what.session;
          outputs.push_back({Kind::kAcceptStream, what.stream, {}});
          return absl::OkStatus();
        } else if constexpr (std::is_same_v<What, aggregator::CloseStream>) {
          if (streams_.erase(what.stream) > 0) {
            outputs.push_back({Kind::kCloseStream, what.stream, {}});
          }
          return absl::OkStatus();
        } else if constexpr (std::is_same_v<What, aggregator::ReleaseShard>) {
          outputs.push_back({Kind::kRelease, SlotOf(id_), {}});
          return absl::OkStatus();
        } else {
          return absl::InternalError("an action is not for a shard");
        }
      },
      action);
}

void ShardProcess::EndStep() {
  const auto dead = [this](const Reduction& one) { return !shell_.IsLive(one); };
  reductions_.erase(std::remove_if(reductions_.begin(), reductions_.end(), dead),
                    reductions_.end());
}

}  // namespace basin::explore

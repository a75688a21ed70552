// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/aggregator_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/vocabulary/overloaded.h"
#include "tests/scenarios/oracle.h"
#include "tests/scenarios/world.h"

namespace basin::scenarios {
namespace {

aggregator::ChunkDigests DigestsOf(const Frame& frame) {
  aggregator::ChunkDigests digests;
  for (uint32_t i = 0; i < frame.values.size(); ++i) {
    digests.push_back(ChunkDigest(frame.tensor, frame.range.first + i, frame.values[i]));
  }
  return digests;
}

}  // namespace

AggregatorProcess::AggregatorProcess(World& world, std::string name, aggregator::Config config)
    : world_(world), name_(std::move(name)), core_(std::move(config), world.now()) {}

void AggregatorProcess::Step(const aggregator::Event& event) {
  follow_ups_.push_back(event);
  while (!follow_ups_.empty()) {
    const aggregator::Event next = std::move(follow_ups_.front());
    follow_ups_.pop_front();
    std::vector<aggregator::Action> actions;
    core_.Step(next, world_.now(), actions);
    for (const aggregator::Action& action : actions) CarryOut(action);
    // Only the first step has a frame to keep.
    frame_ = nullptr;
    value_frame_ = nullptr;
  }
}

void AggregatorProcess::TakeFrame(aggregator::SessionId session, const Frame& frame) {
  frame_ = &frame;
  const auto kind = frame.type == FrameType::kSupply ? aggregator::FrameKind::kSupply
                                                     : aggregator::FrameKind::kContribution;
  Step(aggregator::FrameReceived{session, kind, frame.lane, frame.round, frame.ballot, frame.range,
                                 frame.bytes, DigestsOf(frame)});
}

void AggregatorProcess::TakeValue(aggregator::SessionId session, const ValueFrame& frame) {
  value_frame_ = &frame;
  Step(aggregator::ValueReceived{session, frame.key, frame.first, frame.count, frame.bytes});
}

const TensorSpec& AggregatorProcess::Spec(aggregator::JobId job, LaneIndex lane,
                                          TensorIndex tensor) const {
  return core_.jobs().at(job).lanes()[lane].layout.tensors()[tensor];
}

void AggregatorProcess::CarryOut(const aggregator::Action& action) {
  Network& network = world_.network();
  const auto send_frame = [&](const std::vector<aggregator::SessionId>& sessions, auto frame) {
    for (const aggregator::SessionId session : sessions) {
      if (Link* link = network.FindSession(session)) network.SendFrameDown(*link, frame);
    }
  };
  std::visit(
      Overloaded{
          [&](const aggregator::Send& send) { Send({send.session}, send.message); },
          [&](const aggregator::SendAll& send) { Send(send.sessions, send.message); },
          [&](const aggregator::EndSession& end) {
            Link* link = network.FindSession(end.session);
            if (link == nullptr || !link->aggregator_open) return;
            // What was said before is still heard; frames are of no use to who is told to go.
            for (Stream& stream : link->streams) stream.down.clear();
            network.SendDown(*link, Ended{end.error});
            network.CloseByAggregator(*link);
          },
          [&](const aggregator::KeepChunks& keep) {
            auto& kept = rounds_[{keep.job, keep.lane, keep.round}].contributions[keep.contributor];
            for (uint32_t i = 0; i < keep.range.count; ++i) {
              const uint32_t chunk = keep.range.first + i;
              kept[{keep.range.tensor, chunk}] = frame_->values[chunk - frame_->range.first];
            }
          },
          [&](const aggregator::DiscardChunks& discard) {
            auto& kept = rounds_[{discard.job, discard.lane, discard.round}]
                             .contributions[discard.contributor];
            for (const ChunkRange& range : discard.ranges) {
              for (uint32_t i = 0; i < range.count; ++i)
                kept.erase({range.tensor, range.first + i});
            }
          },
          [&](const aggregator::StartAttempt& start) {
            rounds_[{start.job, start.lane, start.round}].attempts[start.ballot] = start;
          },
          [&](const aggregator::Reduce& reduce) { Reduce(reduce); },
          [&](const aggregator::Publish& publish) { Publish(publish); },
          [&](const aggregator::ReleaseResult& release) {
            RoundBytes& round = rounds_[{release.job, release.lane, release.round}];
            for (uint32_t i = 0; i < release.range.count; ++i) {
              round.results.erase(
                  {release.ballot, {release.range.tensor, release.range.first + i}});
            }
          },
          [&](const aggregator::RelayResult& relay) {
            Frame frame = *frame_;
            frame.type = FrameType::kResult;
            send_frame(relay.sessions, frame);
          },
          [&](const aggregator::EndRound& end) {
            rounds_.erase({end.job, end.lane, end.round});
          },
          [&](const aggregator::RelayValue& relay) {
            if (relay.cache) {
              values_[{relay.key.lane, relay.key.tensor, relay.key.version}] =
                  value_frame_->content;
            }
            send_frame(relay.sessions, *value_frame_);
          },
          [&](const aggregator::SendValue& send) {
            const uint64_t content = values_[{send.key.lane, send.key.tensor, send.key.version}];
            send_frame({send.session}, ValueFrame{send.key, send.first, send.count, content});
          },
          // The network of a scenario has its own delivery.
          [](const aggregator::NameTensors&) {},
          [](const aggregator::EndJob&) {},
          [](const aggregator::ResultsTaken&) {},
          [](const aggregator::AcceptStream&) {},
          [](const aggregator::CloseStream&) {},
          [](const aggregator::SendFrame&) {},
          [](const aggregator::ForgetFrames&) {},
          [&](const aggregator::DropValue& drop) {
            values_.erase({drop.key.lane, drop.key.tensor, drop.key.version});
          },
          [&](const aggregator::SaveState& save) { Save(save); },
          [&](const aggregator::Note& note) {
            std::string about = aggregator::NoteKindName(note.kind);
            if (!note.lane.empty()) absl::StrAppend(&about, " ", note.lane, "/", note.round);
            if (!note.worker.empty()) absl::StrAppend(&about, " ", note.worker);
            world_.Say(Detail::kDecisions, absl::StrCat("  ", name_, ": ", about, ": ", note.text));
          },
          [&](const aggregator::Drained&) {
            world_.Say(Detail::kDecisions, absl::StrCat("  ", name_, ": drained"));
          },
      },
      action);
}

void AggregatorProcess::Send(const std::vector<aggregator::SessionId>& sessions,
                             const ToWorker& message) {
  if (const auto* layout = std::get_if<LaneLayout>(&message)) world_.names().Learn(*layout);
  for (const aggregator::SessionId session : sessions) {
    if (Link* link = world_.network().FindSession(session)) {
      world_.network().SendDown(*link, message);
    }
  }
}

void AggregatorProcess::Reduce(const aggregator::Reduce& reduce) {
  RoundBytes& round = rounds_[{reduce.job, reduce.lane, reduce.round}];
  const auto attempt = round.attempts.find(reduce.ballot);
  if (attempt == round.attempts.end()) {
    world_.Violation(absl::StrCat(name_, " reduces ballot ", ToString(reduce.ballot),
                                  ", which was never started"));
    return;
  }
  const std::string& tensor = Spec(reduce.job, reduce.lane, reduce.range.tensor).name;
  aggregator::ReduceDone done{reduce.job, reduce.lane, reduce.round, reduce.ballot, reduce.range,
                              {},         {}};
  for (uint32_t i = 0; i < reduce.range.count; ++i) {
    const ChunkId id{reduce.range.tensor, reduce.range.first + i};
    std::vector<double> values;
    std::vector<uint64_t> weights;
    const std::vector<Contributor>& contributors = attempt->second.contributors;
    for (uint32_t position = 0; position < contributors.size(); ++position) {
      const auto& skipped = reduce.skipped;
      if (std::find(skipped.begin(), skipped.end(), position) != skipped.end()) continue;
      auto& kept = round.contributions[contributors[position].incarnation];
      const auto bytes = kept.find(id);
      if (bytes == kept.end()) {
        world_.Violation(absl::StrCat(name_, " reduces ", tensor, "[", id.second, "] of round ",
                                      reduce.round, " without the bytes of ",
                                      contributors[position].worker));
        return;
      }
      values.push_back(bytes->second);
      weights.push_back(contributors[position].weight);
      kept.erase(bytes);
    }
    const double result = ReduceValues(attempt->second.spec, values, weights, reduce.divisor);
    round.results[{reduce.ballot, id}] = result;
    done.digests.push_back(ChunkDigest(tensor, id.second, result));
    done.facts.squared_norms.push_back({result * result, 0});
  }
  follow_ups_.push_back(std::move(done));
}

void AggregatorProcess::Publish(const aggregator::Publish& publish) {
  const RoundBytes& round = rounds_[{publish.job, publish.lane, publish.round}];
  const TensorSpec& spec = Spec(publish.job, publish.lane, publish.range.tensor);
  Frame frame{FrameType::kResult,
              publish.lane,
              publish.round,
              publish.ballot,
              publish.range,
              spec.name,
              0,
              {}};
  for (uint32_t i = 0; i < publish.range.count; ++i) {
    const uint32_t chunk = publish.range.first + i;
    const auto result = round.results.find({publish.ballot, {publish.range.tensor, chunk}});
    if (result == round.results.end()) {
      world_.Violation(absl::StrCat(name_, " publishes ", spec.name, "[", chunk, "] of round ",
                                    publish.round, ", which it does not hold"));
      return;
    }
    frame.bytes += ChunkSize(*TensorBytes(spec), chunk);
    frame.values.push_back(result->second);
  }
  for (const aggregator::SessionId session : publish.sessions) {
    if (Link* link = world_.network().FindSession(session)) {
      world_.network().SendFrameDown(*link, frame);
    }
  }
}

void AggregatorProcess::Save(const aggregator::SaveState& save) {
  const bool ok = !world_.disk_full;
  if (ok) world_.disk[save.name] = aggregator::SavedState{save.run, save.term, save.membership};
  world_.Say(Detail::kDecisions,
             absl::StrCat("  ", name_, ": state file: ", ok ? "" : "failed to write ",
                          "generation ", Describe(save.membership)));
  follow_ups_.push_back(aggregator::StateSaved{save.job, save.membership.generation, ok});
}

}  // namespace basin::scenarios

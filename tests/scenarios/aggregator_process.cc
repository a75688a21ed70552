// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/aggregator_process.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/overloaded.h"
#include "tests/scenarios/world.h"

namespace basin::scenarios {
Element Elements::Reduce(const RoundSpec& spec, uint64_t divisor,
                         const std::vector<shell::Given<Element>>& given) {
  std::vector<double> values;
  std::vector<uint64_t> weights;
  for (const auto& [contributor, chunk] : given) {
    values.push_back(chunk.value);
    weights.push_back(contributor.weight);
  }
  return {given.front().chunk.tensor, ReduceValues(spec, values, weights, divisor)};
}

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

void AggregatorProcess::OnFrame(aggregator::SessionId session, const PushFrame& frame) {
  frame_ = &frame;
  Step(shell_.EventOf(session, frame));
}

void AggregatorProcess::OnValue(aggregator::SessionId session, const ValueFrame& frame) {
  value_frame_ = &frame;
  Step(shell_.EventOf(session, frame));
}

void AggregatorProcess::Require(const absl::Status& status) {
  if (!status.ok()) world_.Violation(absl::StrCat(name_, ": ", status.message()));
}

void AggregatorProcess::CarryOut(const aggregator::Action& action) {
  Network& network = world_.network();
  const auto send_frame = [&](aggregator::StreamId stream, const Shell::Frame& frame) {
    network.SendFrameDown(*network.FindStream(stream), frame);
  };
  std::visit(
      Overloaded{
          [&](const aggregator::Send& send) { Send({send.session}, send.message); },
          [&](const aggregator::SendAll& send) { Send(send.sessions, send.message); },
          [&](const aggregator::EndSession& end) {
            Link* link = network.FindSession(end.session);
            if (link == nullptr || !link->aggregator_open) return;
            // Messages that were sent earlier still arrive.
            network.SendDown(*link, Ended{end.error});
            network.CloseByAggregator(*link);
          },
          [&](const aggregator::KeepChunks& keep) { Require(shell_.Do(keep, frame_)); },
          [&](const aggregator::Reduce& reduce) {
            const absl::StatusOr<Shell::Reduction> reduction = shell_.Do(reduce);
            Require(reduction.status());
            if (reduction.ok()) follow_ups_.push_back(shell_.Finish(*reduction));
          },
          [&](const aggregator::Publish& publish) { Require(shell_.Do(publish, send_frame)); },
          [&](const aggregator::RelayResult& relay) {
            Require(shell_.Do(relay, frame_, send_frame));
          },
          [&](const aggregator::RelayValue& relay) {
            Require(shell_.Do(relay, value_frame_, send_frame));
          },
          [&](const aggregator::SendValue& send) { Require(shell_.Do(send, send_frame)); },
          [&](const aggregator::SendFrame& send) { Require(shell_.Do(send, send_frame)); },
          [](const aggregator::ResultsTaken&) {},
          [&](const aggregator::AcceptStream& accept) {
            network.FindStream(accept.stream)->open = true;
          },
          // Frames that the worker has sent may still be on their way.
          [&](const aggregator::CloseStream& close) {
            if (Stream* stream = network.FindStream(close.stream)) stream->down.clear();
          },
          [&](const aggregator::SaveState& save) { Save(save); },
          [](const aggregator::SaveSettings&) {},  // No operator sets anything here.
          [&](const aggregator::Note& note) {
            std::string about = aggregator::NoteKindName(note.kind);
            if (!note.lane.empty()) absl::StrAppend(&about, " ", note.lane, "/", note.round);
            if (!note.worker.empty()) absl::StrAppend(&about, " ", note.worker);
            world_.Say(Detail::kDecisions, absl::StrCat("  ", name_, ": ", about, ": ", note.text));
          },
          [&](const aggregator::Drained&) {
            world_.Say(Detail::kDecisions, absl::StrCat("  ", name_, ": drained"));
          },
          [&](const auto& other) { Require(shell_.Do(other)); },
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

void AggregatorProcess::Save(const aggregator::SaveState& save) {
  const bool ok = !world_.disk_full;
  if (ok) world_.disk[save.name] = aggregator::SavedState{save.run, save.term, save.membership};
  world_.Say(Detail::kDecisions,
             absl::StrCat("  ", name_, ": state file: ", ok ? "" : "failed to write ",
                          "generation ", Describe(save.membership)));
  follow_ups_.push_back(aggregator::StateSaved{save.job, save.membership.generation, ok});
}

}  // namespace basin::scenarios

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/aggregator_process.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/scenarios/world.h"

namespace basin::scenarios {

Element Elements::Reduce(const RoundSpec& spec, uint64_t divisor,
                         const std::vector<world::Given<Element>>& given) {
  std::vector<double> values;
  std::vector<uint64_t> weights;
  for (const auto& [contributor, chunk] : given) {
    values.push_back(chunk.value);
    weights.push_back(contributor.weight);
  }
  return {given.front().chunk.tensor, ReduceValues(spec, values, weights, divisor)};
}

AggregatorProcess::AggregatorProcess(World& world, std::string name, aggregator::Config config)
    : Base(std::move(config), world.now()), world_(world), name_(std::move(name)) {}

void AggregatorProcess::Step(const aggregator::Event& event) {
  follow_ups_.push_back(event);
  while (!follow_ups_.empty()) {
    const aggregator::Event next = std::move(follow_ups_.front());
    follow_ups_.pop_front();
    std::vector<aggregator::Action> actions;
    Decide(next, world_.now(), actions);
    if (const std::string wrong = Wrong(actions, world_.now()); !wrong.empty()) {
      Require(absl::InternalError(wrong));
    }
    for (aggregator::Action& action : actions) CarryOut(action, *this);
    // Only the first step has a frame to keep.
    arrived_ = {};
  }
}

void AggregatorProcess::Require(const absl::Status& status) {
  if (!status.ok()) world_.Violation(absl::StrCat(name_, ": ", status.message()));
}

void AggregatorProcess::SendOn(aggregator::StreamId stream, const Frame& frame) {
  world_.network().SendFrameDown(*world_.network().FindStream(stream), frame);
}

void AggregatorProcess::Do(const aggregator::EndSession& end) {
  Network& network = world_.network();
  Link* link = network.FindSession(end.session);
  if (link == nullptr || !link->aggregator_open) return;
  // Messages that were sent earlier still arrive.
  network.SendDown(*link, Ended{end.error});
  network.CloseByAggregator(*link);
}

void AggregatorProcess::Do(const aggregator::AcceptStream& accept) {
  world_.network().FindStream(accept.stream)->open = true;
}

// Frames that the worker has sent may still be on their way.
void AggregatorProcess::Do(const aggregator::CloseStream& close) {
  if (Stream* stream = world_.network().FindStream(close.stream)) stream->down.clear();
}

void AggregatorProcess::Do(const aggregator::Note& note) {
  std::string about = aggregator::NoteKindName(note.kind);
  if (!note.lane.empty()) absl::StrAppend(&about, " ", note.lane, "/", note.round);
  if (!note.worker.empty()) absl::StrAppend(&about, " ", note.worker);
  world_.Print(Detail::kDecisions, absl::StrCat("  ", name_, ": ", about, ": ", note.text));
}

void AggregatorProcess::Do(const aggregator::Drained&) {
  world_.Print(Detail::kDecisions, absl::StrCat("  ", name_, ": drained"));
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

void AggregatorProcess::Do(const aggregator::SaveState& save) {
  const bool ok = !world_.disk_full;
  if (ok) world_.disk[save.name] = aggregator::SavedState{save.run, save.term, save.membership};
  world_.Print(Detail::kDecisions,
               absl::StrCat("  ", name_, ": state file: ", ok ? "" : "failed to write ",
                            "generation ", Describe(save.membership)));
  follow_ups_.push_back(aggregator::StateSaved{save.job, save.membership.generation, ok});
}

}  // namespace basin::scenarios

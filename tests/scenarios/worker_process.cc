// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/worker_process.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "protocol/overloaded.h"
#include "tests/scenarios/oracle.h"
#include "tests/scenarios/world.h"

namespace basin::scenarios {
namespace {

client::ChunkDigests ValueDigests(const ValueKey& key, uint32_t first, uint32_t count,
                                  uint64_t content) {
  client::ChunkDigests digests;
  for (uint32_t i = 0; i < count; ++i) {
    digests.push_back(ChunkDigest(key.tensor, first + i, static_cast<double>(content)));
  }
  return digests;
}

std::tuple<std::string, std::string, uint64_t> Tuple(const ValueKey& key) {
  return {key.lane, key.tensor, key.version};
}

}  // namespace

WorkerProcess::WorkerProcess(World& world, std::string name, uint32_t number, client::Config config)
    : world_(world),
      name_(std::move(name)),
      number_(number),
      config_(std::move(config)),
      core_(config_) {}

void WorkerProcess::Step(const client::Event& event) {
  std::vector<client::Action> actions;
  core_.Step(event, world_.now(), actions);
  for (const client::Action& action : actions) CarryOut(action);
}

void WorkerProcess::OnMessage(const ToWorker& message) {
  const auto learn = [this](const LaneLayout& layout) {
    std::vector<TensorSpec>& known = layouts_[layout.lane];
    if (known.size() < layout.first + layout.tensors.size()) {
      known.resize(layout.first + layout.tensors.size());
    }
    std::copy(layout.tensors.begin(), layout.tensors.end(), known.begin() + layout.first);
  };
  if (const auto* layout = std::get_if<LaneLayout>(&message)) learn(*layout);
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    for (const LaneLayout& layout : welcome->layouts) learn(layout);
  }
  Step(client::MessageReceived{message});
}

void WorkerProcess::OnFrame(const ResultFrame& frame) {
  frame_ = &frame;
  Step(shell::EventOf(Elements(), frame));
  frame_ = nullptr;
}

void WorkerProcess::OnValue(const ValueFrame& frame) {
  value_frame_ = &frame;
  Step(client::ValueReceived{frame.key, frame.first, frame.count,
                             ValueDigests(frame.key, frame.first, frame.count, frame.content)});
  value_frame_ = nullptr;
}

// ---- the trainer

void WorkerProcess::Register(const std::string& lane, LaneKind kind,
                             const std::vector<TensorSpec>& tensors) {
  const auto [it, added] =
      lanes_by_name_.emplace(lane, static_cast<client::LaneHandle>(lanes_.size()));
  if (added) lanes_.push_back(TrainerLane{lane, {}, {}});
  TrainerLane& mine = lanes_[it->second];
  for (const TensorSpec& spec : tensors) {
    const auto handle = static_cast<client::TensorHandle>(mine.tensors.size());
    if (mine.by_name.emplace(spec.name, handle).second) mine.tensors.push_back(spec);
  }
  Step(client::RegisterTensors{lane, kind, tensors});
}

bool WorkerProcess::HasTensor(const std::string& lane, const std::string& tensor) const {
  return HasLane(lane) && lanes_[Handle(lane)].by_name.count(tensor) > 0;
}

std::vector<std::string> WorkerProcess::TensorsOf(const std::string& lane) const {
  std::vector<std::string> names;
  for (const TensorSpec& spec : lanes_[Handle(lane)].tensors) names.push_back(spec.name);
  return names;
}

client::TensorHandle WorkerProcess::Handle(const std::string& lane,
                                           const std::string& tensor) const {
  return lanes_[Handle(lane)].by_name.at(tensor);
}

void WorkerProcess::Push(const std::string& lane, const std::string& tensor, bool lie) {
  const TensorSpec& spec = lanes_[Handle(lane)].tensors[Handle(lane, tensor)];
  Digest digest = lie ? 1 : 0;
  for (uint32_t chunk = 0; chunk < ChunkCount(*TensorBytes(spec)); ++chunk) {
    digest += ChunkDigest(tensor, chunk, GradientOf(number_));
  }
  Step(client::PushTensor{Handle(lane), Handle(lane, tensor), digest});
}

void WorkerProcess::Announce(const ValueKey& key, const TensorSpec& spec, uint64_t content) {
  values_[Tuple(key)] = {content, *TensorBytes(spec)};
  Digest digest = 0;
  const uint32_t chunks = ChunkCount(*TensorBytes(spec));
  for (const Digest chunk : ValueDigests(key, 0, chunks, content)) digest += chunk;
  Step(client::AnnounceValue{key, spec, digest});
}

// ---- actions of the core

void WorkerProcess::CarryOut(const client::Action& action) {
  Network& network = world_.network();
  Link* link = network.OpenLinkOf(this);
  const auto say = [&](const std::string& text) {
    world_.Say(Detail::kResults, absl::StrCat("  ", name_, ": ", text));
  };
  const auto round = [&](client::LaneHandle lane, RoundNumber number) {
    return absl::StrCat(lanes_[lane].name, " round ", number);
  };
  std::visit(
      Overloaded{
          [&](const client::OpenSession& open) {
            network.Request(Dial{0, world_.now() + open.delay, this, false, 0, 0});
          },
          [&](const client::CloseSession&) {
            if (link != nullptr) network.CloseByWorker(*link);
          },
          [&](const client::OpenStream& open) {
            network.Request(
                Dial{0, world_.now() + open.delay, this, true, open.stream, open.token});
          },
          [&](const client::Send& send) {
            if (link != nullptr) network.SendUp(*link, send.message);
          },
          [&](const client::SendContribution& send) { SendContribution(send); },
          [&](const client::SendSupply& send) { SendSupply(send); },
          [&](const client::SendValue& send) {
            if (link == nullptr) return;
            const auto& [content, bytes] = values_[Tuple(send.key)];
            const uint64_t begin = send.first * kChunkBytes;
            const uint64_t end = std::min(bytes, begin + send.count * kChunkBytes);
            network.SendFrameUp(*link, send.stream,
                                ValueFrame{send.key, send.first, send.count, content, end - begin});
          },
          [&](const client::KeepResult& keep) { Require(shell_.Do(keep, frame_)); },
          [&](const client::KeepValue& keep) { Require(shell_.Do(keep, value_frame_)); },
          [&](const client::Deliver& deliver) { Deliver(deliver); },
          [&](const client::FailRound& fail) {
            const bool goes_on = fail.error.code == ErrorCode::kOutcomeUnknown ||
                                 fail.error.code == ErrorCode::kPaused;
            say(absl::StrCat(goes_on ? "the wait for " : "", round(fail.lane, fail.round),
                             " ends with ", Describe(fail.error)));
          },
          [&](const client::RoundRejected& rejected) {
            say(absl::StrCat(round(rejected.lane, rejected.round),
                             " is not counted: ", Describe(rejected.error)));
          },
          [&](const client::RoundHeldUp& held_up) { say(held_up.text); },
          [&](const client::JobPaused& paused) {
            say(paused.text.empty() ? "the job goes on" : paused.text);
          },
          [&](const client::Refused& refused) {
            say(absl::StrCat("refused: ", Describe(refused.error)));
          },
          [&](const client::MembershipNow& now) { SayMembership(now); },
          [&](const client::ValueReady& ready) {
            const absl::StatusOr<uint64_t> content = shell_.ContentOf(ready.key, ready.spec);
            Require(content.status());
            if (!content.ok()) return;
            say(absl::StrCat(Describe(ready.key), " is ", *content, ", from ", ready.source));
          },
          [&](const client::ValueFailed& failed) {
            say(absl::StrCat(Describe(failed.key), " fails with ", Describe(failed.error)));
          },
          [&](const client::Fatal& fatal) { say(absl::StrCat("FATAL ", Describe(fatal.error))); },
          [&](const client::Left&) { say("has left"); },
      },
      action);
}

void WorkerProcess::Require(const absl::Status& status) {
  if (!status.ok()) world_.Violation(absl::StrCat(name_, ": ", status.message()));
}

void WorkerProcess::SendContribution(const client::SendContribution& send) {
  Link* link = world_.network().OpenLinkOf(this);
  if (link == nullptr) return;
  const std::vector<TensorSpec>& tensors = lanes_[send.lane].tensors;
  const auto spec_of = [&](client::TensorHandle tensor) -> const TensorSpec& {
    return tensors[tensor];
  };
  const auto chunk_of = [&](const TensorSpec& spec, uint32_t) {
    return Element{spec.name, GradientOf(number_)};
  };
  world_.network().SendFrameUp(*link, send.stream, shell_.FrameOf(send, spec_of, chunk_of));
}

void WorkerProcess::SendSupply(const client::SendSupply& send) {
  Link* link = world_.network().OpenLinkOf(this);
  if (link == nullptr) return;
  absl::StatusOr<PushFrame> frame = shell_.FrameOf(
      send,
      [&](TensorIndex tensor) -> const TensorSpec& { return layouts_[send.lane_index][tensor]; });
  if (!frame.ok()) return Require(frame.status());
  world_.network().SendFrameUp(*link, send.stream, *std::move(frame));
}

// Describes the results, as in "sum of {w1,w2} divisor 2" if it holds for all tensors, or tensor by
// tensor. Empty if bytes are missing or torn, which the caller reports as a violation.
std::string WorkerProcess::DescribeResults(const client::Deliver& deliver) const {
  const RoundValue& value = deliver.record.value;
  const shell::StagedChunks<Element>& staged = shell_.staged(deliver.lane);
  const std::vector<TensorSpec>* layout = nullptr;
  for (const auto& [index, tensors] : layouts_) {
    if (world_.names().Lane(index) == lanes_[deliver.lane].name) layout = &tensors;
  }
  std::vector<std::pair<std::string, std::string>> results;  // Tensor, and its result.
  for (TensorIndex tensor = 0; tensor < value.layout_version; ++tensor) {
    if (layout == nullptr || tensor >= layout->size()) return "";
    const TensorSpec& spec = (*layout)[tensor];
    if (!HasResult(value, tensor)) {
      results.emplace_back(spec.name, "no result");
      continue;
    }
    uint64_t divisor = value.divisor;
    for (const TensorDivisor& entry : value.tensor_divisors) {
      if (entry.tensor == tensor) divisor = entry.divisor;
    }
    std::set<std::string> chunks;
    for (uint32_t chunk = 0; chunk < ChunkCount(*TensorBytes(spec)); ++chunk) {
      const Element* held = staged.Find(tensor, chunk);
      if (staged.round != deliver.record.round || held == nullptr) return "";
      chunks.insert(DescribeResult(value.spec, divisor, held->value, world_.worker_names()));
    }
    if (chunks.size() > 1) return "";
    if (!chunks.empty()) results.emplace_back(spec.name, *chunks.begin());
  }
  const bool same = std::all_of(results.begin(), results.end(), [&](const auto& result) {
    return result.second == results.front().second;
  });
  if (same && !results.empty()) return results.front().second;
  return absl::StrJoin(results, "; ", [](std::string* out, const auto& result) {
    absl::StrAppend(out, result.first, ": ", result.second);
  });
}

void WorkerProcess::Deliver(const client::Deliver& deliver) {
  const VerdictRecord& record = deliver.record;
  const std::string results = DescribeResults(deliver);
  const std::string& lane = lanes_[deliver.lane].name;
  if (results.empty()) {
    world_.Violation(absl::StrCat(name_, " was told round ", record.round, " of lane ", lane,
                                  " without all of its bytes"));
  }
  std::string text = absl::StrCat(lane, " round ", record.round, " ",
                                  OutcomeName(record.value.outcome), " ", results);
  if (!record.value.dropped.empty()) {
    absl::StrAppend(&text, ", dropped ", Braces(record.value.dropped));
  }
  world_.Say(Detail::kResults, absl::StrCat("  ", name_, ": ", text));
  world_.CheckSameVersion(name_, core_.run(), lane, record.round, record.chain, results);
}

void WorkerProcess::SayMembership(const client::MembershipNow& now) {
  std::string text;
  if (now.role == Role::kMember) {
    text = absl::StrCat(now.joined ? "joins " : "in ", "generation ", Describe(now.membership));
    if (now.rank.has_value()) absl::StrAppend(&text, " as rank ", *now.rank);
    if (now.donor == config_.worker) {
      absl::StrAppend(&text, ", serves its state");
    } else if (now.donor.has_value() && now.joined) {
      absl::StrAppend(&text, ", state from ", *now.donor);
    }
  } else {
    text = absl::StrCat(now.role == Role::kSpare ? "is a spare of" : "is not a member of",
                        " generation ", Describe(now.membership));
  }
  world_.Say(Detail::kResults, absl::StrCat("  ", name_, ": ", text));
}

}  // namespace basin::scenarios

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/worker_process.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/scenarios/oracle.h"
#include "tests/scenarios/world.h"

namespace basin::scenarios {
WorkerProcess::WorkerProcess(World& world, std::string name, uint32_t number, client::Config config)
    : Base(std::move(config)), world_(world), name_(std::move(name)), number_(number) {}

void WorkerProcess::Step(const client::Event& event) {
  std::vector<client::Action> actions;
  core_.Step(event, world_.now(), actions);
  for (client::Action& action : actions) CarryOut(action, *this);
}

// ---- the trainer

bool WorkerProcess::HasTensor(const std::string& lane, const std::string& tensor) const {
  return HasLane(lane) && core_.FindLane(lane)->by_name.count(tensor) > 0;
}

std::vector<std::string> WorkerProcess::TensorsOf(const std::string& lane) const {
  std::vector<std::string> names;
  for (const client::RegisteredTensor& tensor : core_.FindLane(lane)->tensors) {
    names.push_back(tensor.spec.name);
  }
  return names;
}

client::TensorHandle WorkerProcess::Handle(const std::string& lane,
                                           const std::string& tensor) const {
  return core_.FindLane(lane)->by_name.at(tensor);
}

void WorkerProcess::Push(const std::string& lane, const std::string& tensor, bool lie) {
  const TensorSpec& spec = core_.FindLane(lane)->tensors[Handle(lane, tensor)].spec;
  Digest digest = lie ? 1 : 0;
  for (uint32_t chunk = 0; chunk < ChunkCount(*TensorBytes(spec)); ++chunk) {
    digest += ChunkDigest(tensor, chunk, GradientOf(number_));
  }
  Step(client::PushTensor{Handle(lane), Handle(lane, tensor), digest});
}

void WorkerProcess::Announce(const BlobKey& key, const TensorSpec& spec, uint64_t content) {
  Step(Serve(key, spec, content));
}

// ---- actions of the core

void WorkerProcess::Print(const std::string& text) {
  world_.Print(Detail::kResults, absl::StrCat("  ", name_, ": ", text));
}

void WorkerProcess::Require(const absl::Status& status) {
  if (!status.ok()) world_.Violation(absl::StrCat(name_, ": ", status.message()));
}

template <typename Frame>
void WorkerProcess::SendOn(uint32_t stream, Frame frame) {
  Link* link = world_.network().OpenLinkOf(this);
  if (link != nullptr) world_.network().SendFrameUp(*link, stream, std::move(frame));
}

void WorkerProcess::Do(const client::OpenSession& open) {
  world_.network().Request(Dial{0, world_.now() + open.delay, this, false, 0, 0});
}

void WorkerProcess::Do(const client::CloseSession&) {
  Link* link = world_.network().OpenLinkOf(this);
  if (link != nullptr) world_.network().CloseByWorker(*link);
}

void WorkerProcess::Do(const client::OpenStream& open) {
  world_.network().Request(Dial{0, world_.now() + open.delay, this, true, open.stream, open.token});
}

void WorkerProcess::Do(const client::Send& send) {
  Link* link = world_.network().OpenLinkOf(this);
  if (link != nullptr) world_.network().SendUp(*link, send.message);
}

void WorkerProcess::Do(const client::FailRound& fail) {
  const bool goes_on =
      fail.error.code == ErrorCode::kOutcomeUnknown || fail.error.code == ErrorCode::kPaused;
  Print(absl::StrCat(goes_on ? "the wait for " : "", core_.lanes()[fail.lane].name, " round ",
                     fail.round, " ends with ", Describe(fail.error)));
}

void WorkerProcess::Do(const client::RoundRejected& rejected) {
  Print(absl::StrCat(core_.lanes()[rejected.lane].name, " round ", rejected.round,
                     " is not counted: ", Describe(rejected.error)));
}

void WorkerProcess::Do(const client::Refused& refused) {
  Print(absl::StrCat("refused: ", Describe(refused.error)));
}

void WorkerProcess::Do(const client::BlobReady& ready) {
  const absl::StatusOr<uint64_t> content = shell_.ContentOf(ready.key, ready.spec);
  Require(content.status());
  if (!content.ok()) return;
  Print(absl::StrCat(Describe(ready.key), " is ", *content, ", from ", ready.source));
}

void WorkerProcess::Do(const client::BlobFailed& failed) {
  Print(absl::StrCat(Describe(failed.key), " fails with ", Describe(failed.error)));
}

void WorkerProcess::Do(const client::Fatal& fatal) {
  Print(absl::StrCat("FATAL ", Describe(fatal.error)));
}

// Describes the results, as in "sum of {w1,w2} divisor 2" if it holds for all tensors, or tensor by
// tensor. Empty if bytes are missing or torn, which the caller reports as a violation.
std::string WorkerProcess::DescribeResults(const client::Deliver& deliver) const {
  const RoundValue& value = deliver.record.value;
  const world::StagedChunks<Element>& staged = shell_.staged(deliver.lane);
  const std::vector<TensorSpec>& layout = core_.lanes()[deliver.lane].layout.tensors();
  std::vector<std::pair<std::string, std::string>> results;  // Tensor, and its result.
  for (TensorIndex tensor = 0; tensor < value.layout_version; ++tensor) {
    if (tensor >= layout.size()) return "";
    const TensorSpec& spec = layout[tensor];
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

void WorkerProcess::Do(const client::Deliver& deliver) {
  const VerdictRecord& record = deliver.record;
  const std::string results = DescribeResults(deliver);
  const std::string& lane = core_.lanes()[deliver.lane].name;
  if (results.empty()) {
    world_.Violation(absl::StrCat(name_, " was told round ", record.round, " of lane ", lane,
                                  " without all of its bytes"));
  }
  std::string text = absl::StrCat(lane, " round ", record.round, " ",
                                  OutcomeName(record.value.outcome), " ", results);
  if (!record.value.dropped.empty()) {
    absl::StrAppend(&text, ", dropped ", Braces(record.value.dropped));
  }
  Print(text);
  world_.CheckSameVersion(name_, core_.run(), lane, *core_.lanes()[deliver.lane].index,
                          record.round, record.chain, results);
}

void WorkerProcess::Do(const client::MembershipNow& now) {
  std::string text;
  if (now.role == Role::kMember) {
    text = absl::StrCat(now.joined ? "joins " : "in ", "generation ", Describe(now.membership));
    if (now.rank.has_value()) absl::StrAppend(&text, " as rank ", *now.rank);
    if (now.donor == config().worker) {
      absl::StrAppend(&text, ", serves its state");
    } else if (now.donor.has_value() && now.joined) {
      absl::StrAppend(&text, ", state from ", *now.donor);
    }
  } else {
    text = absl::StrCat(now.role == Role::kSpare ? "is a spare of" : "is not a member of",
                        " generation ", Describe(now.membership));
  }
  Print(text);
}

}  // namespace basin::scenarios

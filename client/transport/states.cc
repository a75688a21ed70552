// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/states.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/checksum.h"
#include "proto/wire/status_detail.h"
#include "protocol/limits/names.h"

namespace basin::client {
namespace {

// The value, and its size in bytes as 8 bytes, which is announced after it.
constexpr char kStates[] = "states";
constexpr char kStatesSize[] = "size";
// The first line of the value.
constexpr char kStatesFormat[] = "basin states 1";
// How long a wait goes on before it looks for workers that have joined, or for another holder.
constexpr absl::Duration kLook = absl::Milliseconds(250);
// A transfer fails after this time, plus one second for each kSlowestBytesPerSecond.
constexpr absl::Duration kPatienceForStates = absl::Seconds(5);
constexpr double kSlowestBytesPerSecond = 10e6;

ErrorCode CodeOf(const absl::Status& status) { return wire::ToError(status).code; }

absl::Status StateError(ErrorCode code, const std::string& text) {
  return wire::ToStatus({code, text});
}

// Together they are unique, and the counter grows within a term, which needs most of 64 bits.
std::string LaneOf(const Generation& generation) {
  return absl::StrCat("states/", generation.term);
}

TensorSpec BytesNamed(const char* name, uint64_t size) { return {name, DType::kU8, {size}}; }

std::string StateNamed(const std::string& name) { return absl::StrCat("state \"", name, "\""); }

// The text up to the end of the line, which is removed with it; nullopt without an end.
std::optional<std::string_view> TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

}  // namespace

States::States(Worker& worker, const Clock& clock, WorkerId id, const std::string& job)
    : worker_(worker),
      clock_(clock),
      id_(std::move(id)),
      who_(absl::StrCat("Worker ", id_, " of job ", job)) {}

absl::Status States::Register(const std::string& name, State state) {
  for (const auto& [what, text] : {std::pair("name", name), std::pair("model", state.model)}) {
    if (absl::Status status = CheckName(text); !status.ok()) {
      return StateError(ErrorCode::kInvalidArgument,
                        absl::StrCat(who_, " cannot register ", StateNamed(name), ": its ", what,
                                     " is not usable: ", std::string(status.message())));
    }
  }
  if (worker_.view().joins > 0) {
    return StateError(ErrorCode::kFailedPrecondition,
                      absl::StrCat(who_, " is a member already, so that ", StateNamed(name),
                                   " may be missing in it. Register states before basin_ready."));
  }
  const MutexLock lock(mutex_);
  if (!states_.emplace(name, std::move(state)).second) {
    return StateError(ErrorCode::kFailedPrecondition,
                      absl::StrCat(who_, " has registered ", StateNamed(name),
                                   " already. Give each state its own name."));
  }
  return absl::OkStatus();
}

void States::AddLane(LaneHandle lane, LaneKind kind) {
  if (kind != LaneKind::kGradient || worker_.InLoop()) return;
  const MutexLock lock(mutex_);
  lanes_.insert(lane);
}

bool States::ServedIn(LaneHandle lane) const {
  // In a callback the calls that serve are refused, and must not wait for the mutex before.
  if (worker_.InLoop()) return false;
  const MutexLock lock(mutex_);
  return !states_.empty() && lanes_.count(lane) != 0;
}

// ---- members

absl::Status States::BeforeRound() {
  const JobView view = worker_.view();
  const MutexLock lock(mutex_);
  if (lanes_.size() > 1) {
    return StateError(
        ErrorCode::kFailedPrecondition,
        absl::StrCat(who_, " has registered states, which are those between two steps, and ",
                     lanes_.size(),
                     " gradient lanes, whose rounds may begin within a step. "
                     "Register one gradient lane, or announce the state with basin_announce."));
  }
  if (view.role != Role::kMember) return absl::OkStatus();  // The begin says so.
  if (joined_ != view.joins) {
    if (view.donor.has_value() && view.donor != id_) {
      return StateError(ErrorCode::kFailedPrecondition,
                        absl::StrCat(who_,
                                     " has joined a job in progress, and has not loaded its "
                                     "states. Call basin_await_member before the round."));
    }
    joined_ = view.joins;
  }
  return ServeLocked(view);
}

RoundOutcome States::Wait(LaneHandle lane, absl::Duration timeout) {
  const absl::Time deadline = clock_.Now() + timeout;
  for (;;) {
    // The verdict of this round may be what changes the view, but then it is there at once.
    const JobView before = worker_.view();
    const absl::Time until = std::min(deadline, clock_.Now() + kLook);
    RoundOutcome outcome = worker_.Wait(lane, until - clock_.Now());
    if (outcome.ok()) {
      const MutexLock lock(mutex_);
      StopServing();
      return outcome;
    }
    const ErrorCode code = CodeOf(outcome.status());
    if (code != ErrorCode::kOutcomeUnknown && code != ErrorCode::kPaused) return outcome;
    if (absl::Status status = Serve(before); !status.ok()) return status;
    // A pause may end the wait early.
    if (clock_.Now() >= deadline || clock_.Now() < until) return outcome;
  }
}

absl::Status States::Serve(const JobView& view) {
  const MutexLock lock(mutex_);
  return ServeLocked(view);
}

absl::Status States::ServeLocked(const JobView& view) {
  if (view.role != Role::kMember || joined_ != view.joins || !IsHolder(view) ||
      view.donor_since == served_) {
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> value = Pack();
  if (!value.ok()) return value.status();
  StopServing();
  value_ = *std::move(value);
  lane_ = LaneOf(view.donor_since);
  const uint64_t version = view.donor_since.counter;
  const uint64_t size = value_.size();
  absl::Status status = worker_.values().Announce(
      {lane_, kStates, version}, BytesNamed(kStates, size), value_.data(), size, Hold::kInPlace);
  if (status.ok()) {
    status = worker_.values().Announce({lane_, kStatesSize, version},
                                       BytesNamed(kStatesSize, sizeof(size)), &size, sizeof(size),
                                       Hold::kCopy);
  }
  if (status.ok()) served_ = view.donor_since;
  return status;
}

void States::StopServing() {
  if (lane_.empty()) return;
  // It fails only when the worker is being closed.
  worker_.values().StopServing(lane_, kStatesSize).IgnoreError();
  worker_.values().StopServing(lane_, kStates).IgnoreError();
  lane_.clear();
  std::string().swap(value_);
}

bool States::IsHolder(const JobView& view) const {
  if (!view.donor.has_value()) return false;
  if (view.donor == id_) return true;
  const MemberList& members = view.membership.members;
  const size_t deputy = !members.empty() && members[0] == *view.donor ? 1 : 0;
  return deputy < members.size() && members[deputy] == id_;
}

absl::StatusOr<std::string_view> States::Get(const std::string& name) {
  absl::StatusOr<std::string_view> content = states_.at(name).get();
  if (content.ok()) return content;
  return StateError(
      ErrorCode::kFailedPrecondition,
      absl::StrCat(who_, " cannot get its ", StateNamed(name), ": ",
                   std::string(content.status().message()),
                   ". Nothing has changed. Correct what has failed, and call this again."));
}

absl::StatusOr<std::string> States::Pack() {
  std::string lines = absl::StrCat(kStatesFormat, "\n", states_.size(), "\n");
  std::string packed;
  for (const auto& [name, state] : states_) {
    const absl::StatusOr<std::string_view> content = Get(name);
    if (!content.ok()) return content.status();
    absl::StrAppend(&lines, name, "\n", state.model, "\n", content->size(), "\n");
    packed += *content;
  }
  packed.insert(0, lines);
  return packed;
}

// ---- joiners

absl::Status States::Ready(uint64_t step, uint64_t state_hash) {
  if (state_hash == 0) {
    const MutexLock lock(mutex_);
    if (!states_.empty()) {
      const absl::StatusOr<std::string> value = Pack();
      if (!value.ok()) return value.status();
      state_hash = std::max(uint64_t{1}, kernels::ChecksumOf(value->data(), value->size()));
    }
  }
  return worker_.Call(DeclareReady{step, state_hash});
}

absl::Status States::AwaitMember(absl::Duration timeout) {
  const absl::Time deadline = clock_.Now() + timeout;
  for (;;) {
    absl::Status status = worker_.AwaitMember(deadline - clock_.Now());
    if (!status.ok()) return status;
    const JobView view = worker_.view();
    WorkerId source;
    absl::StatusOr<std::string> value = std::string();
    {
      const MutexLock lock(mutex_);
      if (states_.empty() || joined_ == view.joins) return absl::OkStatus();
      if (!view.donor.has_value() || view.donor == id_) {
        joined_ = view.joins;
        return absl::OkStatus();
      }
    }
    value = Fetch(view, deadline, &source);
    if (value.ok()) {
      const MutexLock lock(mutex_);
      status = Load(*value, source);
      if (status.ok()) joined_ = view.joins;
      return status;
    }
    const ErrorCode code = CodeOf(value.status());
    const bool again = code == ErrorCode::kUnavailable || code == ErrorCode::kDataCorrupt ||
                       code == ErrorCode::kDeadlineExceeded;
    if (!again || clock_.Now() >= deadline) return value.status();
  }
}

absl::StatusOr<std::string> States::Fetch(const JobView& view, absl::Time deadline,
                                          WorkerId* source) {
  const std::string lane = LaneOf(view.donor_since);
  const uint64_t version = view.donor_since.counter;
  uint64_t size = 0;
  const absl::Time until = std::min(deadline, clock_.Now() + kLook);
  const BlobOutcome found =
      worker_.values().Get({lane, kStatesSize, version}, BytesNamed(kStatesSize, sizeof(size)),
                           std::nullopt, until - clock_.Now());
  if (!found.ok()) return found.status();
  *source = (*found)->source();
  if (absl::Status status = (*found)->CopyTo(&size, sizeof(size)); !status.ok()) return status;
  const absl::Time patience = clock_.Now() + kPatienceForStates +
                              absl::Seconds(static_cast<double>(size) / kSlowestBytesPerSecond);
  const BlobOutcome blob =
      worker_.values().Get({lane, kStates, version}, BytesNamed(kStates, size), *source,
                           std::min(deadline, patience) - clock_.Now());
  if (!blob.ok()) return blob.status();
  std::string value(size, '\0');
  if (absl::Status status = (*blob)->CopyTo(value.data(), size); !status.ok()) return status;
  return value;
}

absl::StatusOr<std::vector<States::Received>> States::Unpack(std::string_view packed) const {
  std::vector<Received> states;
  std::vector<uint64_t> sizes;
  uint64_t count = 0;
  const auto format = TakeLine(packed);
  bool whole = format == kStatesFormat;
  const auto number = whole ? TakeLine(packed) : std::nullopt;
  whole = number.has_value() && absl::SimpleAtoi(std::string(*number), &count);
  // Each state takes three bytes at least, so the count is bounded by the lines.
  for (uint64_t i = 0; whole && i < count; ++i) {
    const auto name = TakeLine(packed);
    const auto model = TakeLine(packed);
    const auto bytes = TakeLine(packed);
    whole = bytes.has_value() && absl::SimpleAtoi(std::string(*bytes), &sizes.emplace_back());
    if (whole) states.push_back({std::string(*name), std::string(*model), {}});
  }
  for (size_t i = 0; whole && i < states.size(); ++i) {
    whole = sizes[i] <= packed.size();
    if (!whole) break;
    states[i].content = packed.substr(0, sizes[i]);
    packed.remove_prefix(sizes[i]);
  }
  if (whole && packed.empty()) return states;
  return StateError(ErrorCode::kVersionMismatch,
                    absl::StrCat(who_,
                                 " does not understand the states of the others. Use the "
                                 "same release of the library on all workers."));
}

absl::Status States::CheckSame(const std::vector<Received>& received,
                               const WorkerId& source) const {
  const auto mismatch = [&](const std::string& what, const std::string& name) {
    return StateError(ErrorCode::kMismatch,
                      absl::StrCat(who_, " joins worker ", source, ", and ", what,
                                   ". Nothing was loaded. Register the same ", StateNamed(name),
                                   " on all workers."));
  };
  std::set<std::string> names;
  for (const Received& theirs : received) {
    names.insert(theirs.name);
    const auto mine = states_.find(theirs.name);
    if (mine == states_.end()) {
      return mismatch(absl::StrCat("has no ", StateNamed(theirs.name)), theirs.name);
    }
    if (mine->second.model != theirs.model) {
      return mismatch(absl::StrCat(StateNamed(theirs.name), " is of \"", mine->second.model,
                                   "\" here and of \"", theirs.model, "\" there"),
                      theirs.name);
    }
  }
  for (const auto& [name, state] : states_) {
    if (names.count(name) == 0) {
      return mismatch(absl::StrCat("that one has no ", StateNamed(name)), name);
    }
  }
  return absl::OkStatus();
}

absl::Status States::Load(std::string_view packed, const WorkerId& source) {
  const auto received = Unpack(packed);
  if (!received.ok()) return received.status();
  if (absl::Status status = CheckSame(*received, source); !status.ok()) return status;
  std::map<std::string, std::string> before;
  for (const auto& [name, state] : states_) {
    const absl::StatusOr<std::string_view> content = Get(name);
    if (!content.ok()) return content.status();
    before[name] = std::string(*content);
  }
  for (auto it = received->begin(); it != received->end(); ++it) {
    const absl::Status set = states_.at(it->name).set(it->content);
    if (set.ok()) continue;
    std::string undone = "The states are as they were";
    for (auto changed = received->begin(); changed <= it; ++changed) {
      const absl::Status back = states_.at(changed->name).set(before[changed->name]);
      if (!back.ok())
        undone = absl::StrCat("Its ", StateNamed(changed->name), " could not be set back");
    }
    return StateError(
        ErrorCode::kFailedPrecondition,
        absl::StrCat(who_, " cannot set its ", StateNamed(it->name), " to that of worker ", source,
                     ": ", std::string(set.message()), ". ", undone,
                     ". Correct what has failed, and call basin_await_member again."));
  }
  return absl::OkStatus();
}

}  // namespace basin::client

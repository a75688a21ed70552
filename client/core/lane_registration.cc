// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/lane_registration.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/core/lane_round.h"
#include "client/core/lane_verdict.h"

namespace basin::client {
namespace {

// The tensor gets no index, so its pushed bytes cannot be sent.
void RefuseTensor(Lane& lane, const Scope& scope, TensorHandle handle, const Error& why) {
  lane.tensors[handle].refusal = why;
  if (!lane.index.has_value() || !lane.round.has_value() || !lane.round->push().Has(handle)) return;
  if (!lane.round->Apply(RoundInput::kRefused)) return;
  const Error error =
      why.code == ErrorCode::kMismatch ? lane.RefuseCall(ErrorCode::kMismatch, why.text) : why;
  scope.actions.push_back(RoundRejected{lane.handle, lane.round->number(), error});
  lane.round->OnRefusal(error.text);
  lane.round->SetReason(error.text);
  lane.round->Stop(scope);
  lane.round->SendWithdraw(scope, lane.Id());
}

// The tensor has this index, unless the job has another tensor by that name.
void MapTensor(Lane& lane, const Scope& scope, TensorHandle handle, TensorIndex index) {
  RegisteredTensor& tensor = lane.tensors[handle];
  if (tensor.index.has_value() || tensor.refusal.code == ErrorCode::kMismatch) return;
  const TensorSpec& theirs = lane.layout.tensors()[index];
  if (theirs == tensor.spec) {
    tensor.index = index;
    tensor.refusal = {};
    if (lane.round.has_value()) lane.round->SetIndex(scope, lane.Id(), handle, index);
    return;
  }
  RefuseTensor(
      lane, scope, handle,
      {ErrorCode::kMismatch,
       absl::StrCat("tensor ", tensor.spec.name, " is ", DescribeSpec(tensor.spec), " here, but ",
                    DescribeSpec(theirs), " in the job. Build the same model on every worker.")});
}

void SendTensors(const Lane& lane, const Scope& scope, size_t first) {
  do {  // A lane without tensors is named too.
    basin::Register message{lane.name, lane.kind, {}};
    const size_t end = std::min<size_t>(lane.tensors.size(), first + scope.config.register_batch);
    for (; first < end; ++first) message.tensors.push_back(lane.tensors[first].spec);
    scope.Send(std::move(message));
  } while (first < lane.tensors.size());
}

}  // namespace

Error WhyNotRegister(const Lane& lane, const Config& config, LaneKind kind,
                     const std::vector<TensorSpec>& tensors) {
  if (kind != lane.kind) {
    return lane.RefuseCall(
        ErrorCode::kMismatch,
        "a gradient lane and a call lane have the same name; rename one of them.");
  }
  std::map<std::string, const TensorSpec*> fresh;
  for (const TensorSpec& spec : tensors) {
    const TensorSpec* known = nullptr;
    if (const auto it = lane.by_name.find(spec.name); it != lane.by_name.end()) {
      known = &lane.tensors[it->second].spec;
    } else if (const auto [at, added] = fresh.emplace(spec.name, &spec); !added) {
      known = at->second;
    }
    if (known != nullptr && *known != spec) {
      return lane.RefuseCall(
          ErrorCode::kMismatch,
          absl::StrCat("tensor ", spec.name, " is registered as ", DescribeSpec(*known),
                       " and cannot become ", DescribeSpec(spec), "."));
    }
    if (!HasUsableSize(spec)) {
      return lane.RefuseCall(
          ErrorCode::kInvalidArgument,
          absl::StrCat("tensor ", spec.name, " as ", DescribeSpec(spec),
                       " has no usable size; the limit is ", kMaxTensorBytes, " bytes."));
    }
  }
  if (lane.tensors.size() + fresh.size() > config.max_tensors) {
    return lane.RefuseCall(
        ErrorCode::kResourceExhausted,
        absl::StrCat("it would have ", lane.tensors.size() + fresh.size(),
                     " tensors, but the limit is ", config.max_tensors, "; fuse small ones."));
  }
  return {};
}

void Register(Lane& lane, const Scope& scope, const std::vector<TensorSpec>& tensors) {
  const size_t before = lane.tensors.size();
  size_t first = before;  // To be sent.
  for (const TensorSpec& spec : tensors) {
    const auto handle = static_cast<TensorHandle>(lane.tensors.size());
    const auto [at, fresh] = lane.by_name.emplace(spec.name, handle);
    if (fresh) {
      lane.tensors.push_back({spec, std::nullopt, {}});
      continue;
    }
    // Refused tensors are registered again: there may be room for them now.
    RegisteredTensor& known = lane.tensors[at->second];
    if (known.refusal.code == ErrorCode::kOk || known.refusal.code == ErrorCode::kMismatch)
      continue;
    known.refusal = {};
    first = std::min<size_t>(first, at->second);
  }
  if (first == lane.tensors.size() && lane.index.has_value()) return;  // Nothing new.
  // The layout may already have tensors of others.
  for (TensorHandle handle = static_cast<TensorHandle>(before); handle < lane.tensors.size();
       ++handle) {
    const auto index = lane.layout.Find(lane.tensors[handle].spec.name);
    if (index.has_value()) MapTensor(lane, scope, handle, *index);
  }
  if (scope.welcomed) SendTensors(lane, scope, first);
}

void SendRegister(const Lane& lane, const Scope& scope) { SendTensors(lane, scope, 0); }

void RegisterAgain(Lane& lane, const Scope& scope) {
  if (!lane.round.has_value() || !lane.round->begin_sent() ||
      lane.asked_again == lane.round->number())
    return;
  lane.asked_again = lane.round->number();
  lane.in_session = false;
  lane.round->Stop(scope);
  lane.round->EndSession();
  lane.round->Place(lane.Id());
  SendRegister(lane, scope);
}

Finding OnLayout(Lane& lane, const Scope& scope, const LaneLayout& layout) {
  // Other workers added tensors while this worker's own registration is in flight; its answer has
  // the whole layout.
  if (!lane.index.has_value() && layout.first > lane.layout.version()) return {};
  // An aggregator that recovered a job of two others may number its lanes anew; their names and
  // tensors stay.
  const bool named = !lane.index.has_value() || *lane.index == layout.lane || layout.first == 0;
  // A call lane that was idle for long, and any lane without history, may be laid out anew, even
  // with the same first tensors: this aggregator does not know the other tensors.
  const bool anew = layout.first == 0 && (lane.kind == LaneKind::kCall || !lane.started);
  const bool shorter = anew && !lane.in_session && layout.tensors.size() < lane.layout.version();
  bool fits = named && !shorter &&
              Extend(lane.layout, layout.first, layout.tensors, scope.config.max_tensors);
  if (!fits && anew) {
    lane.layout = Layout();
    lane.placed = false;  // Its shares were those of the former layout.
    lane.settlement.EndSession();
    for (RegisteredTensor& tensor : lane.tensors) tensor.index.reset();
    if (lane.round.has_value()) lane.round->ForgetIndexes(scope);
    fits = Extend(lane.layout, 0, layout.tensors, scope.config.max_tensors);
  }
  if (!fits) {
    return {Consequence::kReconnect,
            {ErrorCode::kInvalidArgument,
             absl::StrCat("The layout of lane ", lane.name, " from entry ", layout.first,
                          " does not continue the layout that this worker received before.")}};
  }
  // A call that this worker joined, and that was made before its trainer named it.
  if (!lane.index.has_value() && lane.started && lane.kind == LaneKind::kCall &&
      layout.round != lane.next()) {
    lane.Start(layout.round, layout.round == 1 ? std::optional<uint64_t>(0) : std::nullopt);
    if (lane.round.has_value()) lane.round->SetNumber(lane.next());
  }
  lane.index = layout.lane;
  lane.in_session = true;
  lane.window = layout.window;
  lane.layout_round = layout.round;
  if (!lane.Use(scope.placements, layout.placement)) return lane.UnknownPlacement();
  if (lane.round.has_value() && (!lane.round->begin_sent() || lane.round->push().window() == 0)) {
    lane.round->SetWindow(lane.window);
  }
  for (TensorIndex index = layout.first; index < lane.layout.version(); ++index) {
    const auto it = lane.by_name.find(lane.layout.tensors()[index].name);
    if (it != lane.by_name.end()) MapTensor(lane, scope, it->second, index);
  }
  scope.Send(LayoutSeen{*lane.index, lane.layout.version()});
  return OnEarly(lane, scope, lane.settlement.OnLayout(scope, lane.Id()));
}

void OnRegistrationRefused(Lane& lane, const Scope& scope, const std::string& tensor,
                           const Error& error) {
  for (TensorHandle handle = 0; handle < lane.tensors.size(); ++handle) {
    const RegisteredTensor& known = lane.tensors[handle];
    if (known.index.has_value() || known.refusal.code != ErrorCode::kOk) continue;
    if (tensor.empty() || known.spec.name == tensor) RefuseTensor(lane, scope, handle, error);
  }
  // The aggregator has received nothing of a round in a lane that it does not have.
  if (!lane.index.has_value()) FailRoundInFlight(lane, scope, error);
}

}  // namespace basin::client

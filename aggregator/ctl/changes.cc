// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/changes.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

// A change of a job that needs no more than its name.
template <typename Request, typename Method>
absl::Status ChangeJob(Client& client, Method method) {
  auto request = Client::With<Request>();
  request.set_job(client.word(1));
  v1::ChangeResponse change;
  absl::Status called = client.Call(method, request, change);
  if (called.ok()) client.Answer(change);
  return called;
}

// Puts the value that has this name into `to`; an empty name changes nothing.
template <typename Policy>
absl::Status TakePolicy(const char* flag, const std::string& name,
                        const std::vector<std::pair<std::string, Policy>>& known, Policy& to) {
  if (name.empty()) return absl::OkStatus();
  for (const auto& [word, policy] : known) {
    if (word != name) continue;
    to = policy;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(flag, " is ", QuoteForError(name), ": it must be ",
                                                 known[0].first, " or ", known[1].first));
}

}  // namespace

// "drain service", "drain worker JOB WORKER".
absl::Status RunDrain(Client& client) {
  v1::ChangeResponse change;
  absl::Status called;
  if (client.word(1) == "service") {
    called = client.Call(&v1::Admin::Stub::DrainService, Client::With<v1::DrainServiceRequest>(),
                         change);
  } else if (client.word(1) == "worker" && client.arguments().words.size() == 4) {
    auto request = Client::With<v1::DrainWorkerRequest>();
    request.set_job(client.word(2));
    request.set_worker(client.word(3));
    called = client.Call(&v1::Admin::Stub::DrainWorker, request, change);
  } else {
    return absl::InvalidArgumentError(
        "write `basinctl drain service` or `basinctl drain worker JOB WORKER`");
  }
  if (called.ok()) client.Answer(change);
  return called;
}

absl::Status RunStepDown(Client& client) {
  v1::ChangeResponse change;
  absl::Status called =
      client.Call(&v1::Admin::Stub::StepDown, Client::With<v1::StepDownRequest>(), change);
  if (called.ok()) client.Answer(change);
  return called;
}

absl::Status RunEvict(Client& client) {
  auto request = Client::With<v1::EvictRequest>();
  request.set_job(client.word(1));
  request.set_worker(client.word(2));
  request.set_reason(client.arguments().reason);
  v1::ChangeResponse change;
  absl::Status called = client.Call(&v1::Admin::Stub::Evict, request, change);
  if (called.ok()) client.Answer(change);
  return called;
}

absl::Status RunReportExit(Client& client) {
  auto request = Client::With<v1::ReportExitRequest>();
  request.set_job(client.word(1));
  request.set_worker(client.word(2));
  request.set_exit_status(client.arguments().exit_status);
  v1::ChangeResponse change;
  absl::Status called = client.Call(&v1::Admin::Stub::ReportExit, request, change);
  if (called.ok()) client.Answer(change);
  return called;
}

absl::Status RunPause(Client& client) {
  return ChangeJob<v1::PauseRequest>(client, &v1::Admin::Stub::Pause);
}
absl::Status RunResume(Client& client) {
  return ChangeJob<v1::ResumeRequest>(client, &v1::Admin::Stub::Resume);
}
absl::Status RunRecover(Client& client) {
  return ChangeJob<v1::RecoverRequest>(client, &v1::Admin::Stub::Recover);
}

absl::Status RunJob(Client& client) {
  const Arguments& arguments = client.arguments();
  if (client.word(1) != "set") {
    return absl::InvalidArgumentError("write `basinctl job set JOB` and what to set");
  }
  auto request = Client::With<v1::SetJobRequest>();
  request.set_job(client.word(2));
  if (arguments.min_workers > 0) request.set_min_workers(arguments.min_workers);
  if (arguments.max_workers > 0) request.set_max_workers(arguments.max_workers);
  v1::LossPolicy loss = v1::LOSS_POLICY_UNSPECIFIED;
  v1::LatePolicy late = v1::LATE_POLICY_UNSPECIFIED;
  absl::Status known = TakePolicy<v1::LossPolicy>(
      "--loss-policy", arguments.loss_policy,
      {{"shrink", v1::LOSS_POLICY_SHRINK}, {"abort", v1::LOSS_POLICY_ABORT}}, loss);
  if (known.ok()) {
    known = TakePolicy<v1::LatePolicy>("--late-policy", arguments.late_policy,
                                       {{"wait", v1::LATE_POLICY_WAIT},
                                        {"evict", v1::LATE_POLICY_EVICT},
                                        {"leave_out", v1::LATE_POLICY_LEAVE_OUT},
                                        {"carry", v1::LATE_POLICY_CARRY}},
                                       late);
  }
  if (!known.ok()) return known;
  if (arguments.own_flags.empty()) {
    return absl::InvalidArgumentError(
        "nothing to set; write --min, --max, --loss-policy or --late-policy");
  }
  request.set_loss_policy(loss);
  request.set_late_policy(late);
  v1::ChangeResponse change;
  absl::Status called = client.Call(&v1::Admin::Stub::SetJob, request, change);
  if (called.ok()) client.Answer(change);
  return called;
}

}  // namespace basin::aggregator

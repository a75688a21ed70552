// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/changes.h"

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

}  // namespace basin::aggregator

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/queries.h"

#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "aggregator/admin/metadata.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

// The number of the newest event when the call began; nothing if the call was refused.
std::optional<uint64_t> LastEvent(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerInitialMetadata();
  const auto found = metadata.find(kLastEventMetadata);
  uint64_t last = 0;
  if (found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &last)) {
    return std::nullopt;
  }
  return last;
}

}  // namespace

absl::Status RunStatus(Client& client) {
  v1::ServiceStatus status;
  absl::Status called =
      client.Call(&v1::Admin::Stub::GetStatus, Client::With<v1::GetStatusRequest>(), status);
  if (!called.ok()) return called;
  v1::ListJobsResponse jobs;
  called = client.Call(&v1::Admin::Stub::ListJobs, Client::With<v1::ListJobsRequest>(), jobs);
  if (!called.ok()) return called;
  const Format format = client.arguments().format;
  // For programs one object: {"service": {...}, "jobs": [...]}.
  Print(format == Format::kTable
            ? Show(status) + (jobs.jobs().empty() ? "" : "\n" + Show(jobs))
            : Structured(absl::StrCat("{\"service\":", Json(status), ",", Json(jobs).substr(1)),
                         format));
  return absl::OkStatus();
}

absl::Status RunJobs(Client& client) {
  v1::ListJobsResponse jobs;
  absl::Status called =
      client.Call(&v1::Admin::Stub::ListJobs, Client::With<v1::ListJobsRequest>(), jobs);
  if (called.ok()) client.Answer(jobs);
  return called;
}

absl::Status RunGoodput(Client& client) {
  v1::ListJobsResponse jobs;
  absl::Status called =
      client.Call(&v1::Admin::Stub::ListJobs, Client::With<v1::ListJobsRequest>(), jobs);
  if (!called.ok()) return called;
  for (const v1::JobStatus& job : jobs.jobs()) {
    if (job.job() != client.word(1)) continue;
    client.Answer(job.goodput());
    return absl::OkStatus();
  }
  return absl::NotFoundError(
      absl::StrCat("there is no job ", QuoteForError(client.word(1)), "; see basinctl jobs"));
}

absl::Status RunLimits(Client& client) {
  v1::LimitsResponse limits;
  absl::Status called =
      client.Call(&v1::Admin::Stub::GetLimits, Client::With<v1::GetLimitsRequest>(), limits);
  if (called.ok()) client.Answer(limits);
  return called;
}

absl::Status RunMembers(Client& client) {
  auto request = Client::With<v1::ListMembersRequest>();
  request.set_job(client.word(1));
  v1::ListMembersResponse members;
  absl::Status called = client.Call(&v1::Admin::Stub::ListMembers, request, members);
  if (called.ok()) client.Answer(members);
  return called;
}

absl::Status RunRounds(Client& client) {
  auto request = Client::With<v1::ListRoundsRequest>();
  request.set_job(client.word(1));
  request.set_lane(client.arguments().lane);
  request.set_last(client.arguments().last);
  v1::ListRoundsResponse rounds;
  absl::Status called = client.Call(&v1::Admin::Stub::ListRounds, request, rounds);
  if (called.ok()) client.Answer(rounds);
  return called;
}

absl::Status RunShards(Client& client) {
  v1::ListShardsResponse shards;
  absl::Status called =
      client.Call(&v1::Admin::Stub::ListShards, Client::With<v1::ListShardsRequest>(), shards);
  if (called.ok()) client.Answer(shards);
  return called;
}

absl::Status RunEvents(Client& client) {
  const Arguments& arguments = client.arguments();
  auto request = Client::With<v1::WatchEventsRequest>();
  request.set_job(arguments.job);
  request.set_after(arguments.after);
  grpc::ClientContext context;
  client.Identify(context);
  // With -f there is no deadline.
  if (!arguments.follow) client.SetDeadline(context);
  const auto reader = client.stub().WatchEvents(&context, request);
  reader->WaitForInitialMetadata();
  const std::optional<uint64_t> last = LastEvent(context);
  v1::Event event;
  bool complete = !arguments.follow && last.has_value() && *last <= arguments.after;
  while (!complete && reader->Read(&event)) {
    client.Answer(event);
    complete = !arguments.follow && last.has_value() && event.sequence() >= *last;
  }
  if (complete) {
    context.TryCancel();
    reader->Finish();
    return absl::OkStatus();
  }
  return FromGrpc(reader->Finish());
}

absl::Status RunDump(Client& client) {
  auto request = Client::With<v1::DumpRequest>();
  if (client.arguments().words.size() == 2) request.set_job(client.word(1));
  v1::DumpResponse dump;
  absl::Status called = client.Call(&v1::Admin::Stub::Dump, request, dump);
  if (called.ok()) client.Answer(dump);
  return called;
}

}  // namespace basin::aggregator

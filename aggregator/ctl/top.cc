// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/top.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "aggregator/admin/words.h"
#include "aggregator/ctl/output.h"
#include "aggregator/ctl/table.h"
#include "aggregator/ctl/watch.h"
#include "nlohmann/json.hpp"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

// One job in one look.
struct Row {
  std::string job;
  std::string state;
  uint32_t members = 0;
  uint64_t rounds = 0;                      // Since the job began.
  std::optional<double> rounds_per_second;  // Since the last look; absent in the first.
  uint64_t memory = 0;
  std::string waits_for;  // What the open round with the longest wait waits for.
};

// The rounds that the jobs had ended at a look.
struct Look {
  absl::Time time;
  std::map<std::string, uint64_t> rounds;
};

std::string LongestWait(const v1::ListRoundsResponse& rounds) {
  const v1::Waiting* longest = nullptr;
  for (const v1::LaneRounds& lane : rounds.lanes()) {
    for (const v1::Waiting& waiting : lane.open().waiting()) {
      if (longest == nullptr || waiting.waited_ns() > longest->waited_ns()) longest = &waiting;
    }
  }
  if (longest == nullptr || longest->waited_ns() == 0) return "";
  return absl::StrCat(longest->worker(), ": ", longest->what(), " for ",
                      Span(longest->waited_ns()));
}

Row RowOf(const v1::JobStatus& job, const v1::ListRoundsResponse& rounds,
          const std::optional<Look>& before, absl::Time now) {
  Row row;
  row.job = job.job();
  row.state = Word(job.state());
  row.members = job.members();
  row.rounds = job.committed_rounds() + job.aborted_rounds();
  row.memory = job.buffer_bytes();
  row.waits_for = LongestWait(rounds);
  if (!before.has_value()) return row;
  const auto known = before->rounds.find(row.job);
  // A job that was forgotten and has begun again counts from 0.
  if (known != before->rounds.end() && known->second <= row.rounds) {
    row.rounds_per_second =
        (row.rounds - known->second) / absl::ToDoubleSeconds(now - before->time);
  }
  return row;
}

std::string Rate(const Row& row) {
  return row.rounds_per_second.has_value() ? absl::StrFormat("%.2f", *row.rounds_per_second) : "";
}

std::string TimeOfRound(const Row& row) {
  if (row.rounds_per_second.value_or(0) <= 0) return "";
  return Span(static_cast<uint64_t>(1e9 / *row.rounds_per_second));
}

std::string Screen(const v1::ServiceStatus& status, const std::vector<Row>& rows) {
  TextTable table({"JOB", "STATE", "MEMBERS", "ROUNDS", "ROUNDS/S", "EACH", "MEMORY", "WAITS FOR"});
  for (const Row& row : rows) {
    table.Add({row.job, row.state, absl::StrCat(row.members), absl::StrCat(row.rounds), Rate(row),
               TimeOfRound(row), Size(row.memory), row.waits_for});
  }
  return Show(status) + "\n" + table.Text();
}

// One line for each job, for grep and awk.
std::string Lines(const std::vector<Row>& rows, absl::Time now) {
  std::string text;
  for (const Row& row : rows) {
    const std::string line = absl::StrCat(
        absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", now, absl::UTCTimeZone()), " job=", row.job,
        " state=", row.state, " members=", row.members, " rounds=", row.rounds,
        " rounds_per_second=", row.rounds_per_second.has_value() ? Rate(row) : "-",
        " memory=", row.memory, " waits_for=", row.waits_for.empty() ? "-" : row.waits_for);
    absl::StrAppend(&text, PrintableText(line, kMaxTextBytes), "\n");
  }
  return text;
}

std::string ForPrograms(const std::vector<Row>& rows, absl::Time now, Format format) {
  nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json job = {
        {"job", row.job}, {"state", row.state}, {"members", row.members}, {"rounds", row.rounds}};
    if (row.rounds_per_second.has_value()) job["rounds_per_second"] = *row.rounds_per_second;
    job["buffer_bytes"] = row.memory;
    job["waits_for"] = row.waits_for;
    jobs.push_back(std::move(job));
  }
  const nlohmann::ordered_json look = {{"time", absl::FormatTime(now, absl::UTCTimeZone())},
                                       {"jobs", std::move(jobs)}};
  return Structured(look.dump(), format);
}

absl::Status ShowOnce(Client& client, std::optional<Look>& before) {
  v1::ServiceStatus status;
  absl::Status called =
      client.Call(&v1::Admin::Stub::GetStatus, Client::With<v1::GetStatusRequest>(), status);
  if (!called.ok()) return called;
  v1::ListJobsResponse jobs;
  called = client.Call(&v1::Admin::Stub::ListJobs, Client::With<v1::ListJobsRequest>(), jobs);
  if (!called.ok()) return called;
  Look look;
  look.time = absl::Now();
  std::vector<Row> rows;
  for (const v1::JobStatus& job : jobs.jobs()) {
    auto request = Client::With<v1::ListRoundsRequest>();
    request.set_job(job.job());
    v1::ListRoundsResponse rounds;
    called = client.Call(&v1::Admin::Stub::ListRounds, request, rounds);
    if (absl::IsNotFound(called)) continue;  // It has ended meanwhile.
    if (!called.ok()) return called;
    rows.push_back(RowOf(job, rounds, before, look.time));
    look.rounds[job.job()] = rows.back().rounds;
  }
  before = std::move(look);
  const Format format = client.arguments().format;
  Print(format != Format::kTable ? ForPrograms(rows, before->time, format)
        : OnTerminal()           ? Screen(status, rows)
                                 : Lines(rows, before->time));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunTop(Client& client) {
  std::optional<Look> before;
  return Repeat(client.arguments(), [&] { return ShowOnce(client, before); });
}

}  // namespace basin::aggregator

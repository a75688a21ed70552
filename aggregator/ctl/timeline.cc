// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/timeline.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/ctl/client.h"
#include "aggregator/ctl/job_trace.h"
#include "aggregator/ctl/merge_trace.h"
#include "aggregator/ctl/output.h"

namespace basin::aggregator {
namespace {

absl::Status CheckTimeline(const Arguments& arguments) {
  const bool has_files = arguments.words.size() > 1;
  if (arguments.format == Format::kYaml) {
    return absl::InvalidArgumentError(
        "a timeline is JSON; leave out -o, and name the file with --file");
  }
  if (arguments.merge != has_files) {
    return absl::InvalidArgumentError(
        arguments.merge ? "--merge needs the files to join, which BASIN_TIMELINE wrote"
                        : "files are joined with --merge; name the job with --job");
  }
  if (!arguments.merge && arguments.job.empty()) {
    return absl::InvalidArgumentError(
        "--job is missing; write the name of a job, or --merge and files of workers");
  }
  return absl::OkStatus();
}

// The lines of the job's trace.
absl::StatusOr<std::vector<std::string>> AskForJob(const Arguments& arguments) {
  absl::StatusOr<Client> client = Client::Open(arguments);
  if (!client.ok()) return client.status();
  const auto& own = arguments.own_flags;
  const bool some = std::find(own.begin(), own.end(), "--rounds") != own.end();
  const uint32_t most = some ? std::min(arguments.rounds, kMaxPastRounds) : kMaxPastRounds;
  auto request = Client::With<v1::ListRoundsRequest>();
  request.set_job(arguments.job);
  request.set_lane(arguments.lane);
  request.set_last(most);
  v1::ListRoundsResponse rounds;
  const absl::Status called = client->Call(&v1::Admin::Stub::ListRounds, request, rounds);
  if (absl::IsUnavailable(called)) ExplainUnreachable(arguments);
  if (!called.ok()) return called;
  std::vector<std::string> lines;
  for (const TraceEvent& event : EventsOf(rounds, arguments.job, most)) {
    lines.push_back(ToJson(event));
  }
  return lines;
}

absl::Status AddFile(const std::string& path, TraceMerger& merger) {
  std::ifstream file(path);
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " cannot be read: ", std::strerror(errno)));
  }
  return merger.Add(path, [&file](std::string& line) { return bool(std::getline(file, line)); });
}

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat left = {};
  struct stat right = {};
  return stat(a.c_str(), &left) == 0 && stat(b.c_str(), &right) == 0 &&
         left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

}  // namespace

absl::Status RunTimeline(const Arguments& arguments) {
  if (absl::Status good = CheckTimeline(arguments); !good.ok()) return good;
  const std::vector<std::string> files(arguments.words.begin() + 1, arguments.words.end());
  for (const std::string& file : files) {
    if (arguments.file.empty() || !IsSameFile(file, arguments.file)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--file is ", arguments.file, ", which is to be read; name another file"));
  }
  // Asked first, so that an error leaves an earlier file as it is.
  std::vector<std::string> lines;
  if (!arguments.job.empty()) {
    absl::StatusOr<std::vector<std::string>> asked = AskForJob(arguments);
    if (!asked.ok()) return asked.status();
    lines = *std::move(asked);
  }
  std::ofstream file;
  const auto cannot_write = [&] {
    return absl::FailedPreconditionError(
        absl::StrCat(arguments.file, " cannot be written: ", std::strerror(errno)));
  };
  if (!arguments.file.empty()) {
    file.open(arguments.file, std::ios::trunc);
    if (!file) return cannot_write();
  }
  TraceMerger merger([&](const std::string& text) {
    if (arguments.file.empty()) {
      Print(text);
    } else if (!(file << text)) {
      return cannot_write();
    }
    return absl::OkStatus();
  });
  auto line = lines.begin();
  absl::Status added = merger.Add("the job's trace", [&](std::string& next) {
    if (line == lines.end()) return false;
    next = *line++;
    return true;
  });
  for (const std::string& path : files) {
    if (added.ok()) added = AddFile(path, merger);
  }
  if (added.ok()) added = merger.End();
  if (!added.ok() || arguments.file.empty()) return added;
  file.close();
  if (!file) return cannot_write();
  Complain(
      absl::StrCat("basinctl: wrote ", arguments.file, "; open it in https://ui.perfetto.dev\n"));
  return absl::OkStatus();
}

}  // namespace basin::aggregator

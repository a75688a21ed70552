// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/state/format.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/checksum.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

constexpr char kFirstLine[] = "basin-state 1";
constexpr char kFirstLineOfTwo[] = "basin-state 2";
constexpr char kSet[] = "set ";
constexpr char kNoRun[] = "-";
constexpr char kNotSet[] = "-";

std::string ChecksumLine(std::string_view body) {
  return absl::StrCat("checksum ",
                      absl::Hex(kernels::ChecksumOf(body.data(), body.size()), absl::kZeroPad16));
}

// Reads a text line by line.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  // The next line without its end; a line that has none is incomplete.
  absl::StatusOr<std::string> Next() {
    ++number_;
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return Wrong("the text ends here");
    std::string line(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return line;
  }
  // The next line, which must be `words` words.
  absl::StatusOr<std::vector<std::string>> NextWords(size_t words) {
    absl::StatusOr<std::string> line = Next();
    if (!line.ok()) return line.status();
    std::vector<std::string> found = absl::StrSplit(*line, ' ');
    if (found.size() != words) return Wrong("it has the wrong words");
    return found;
  }

  absl::Status Wrong(const std::string& what) const {
    return absl::DataLossError(absl::StrCat("line ", number_, ": ", what));
  }
  std::string_view rest() const { return rest_; }
  bool NextBegins(std::string_view text) const { return rest_.substr(0, text.size()) == text; }

 private:
  std::string_view rest_;
  size_t number_ = 0;
};

bool ReadNumber(const std::string& text, uint64_t& number) {
  return absl::SimpleAtoi(text, &number) && absl::StrCat(number) == text;
}

bool ReadGeneration(const std::string& text, Generation& generation) {
  const std::vector<std::string> parts = absl::StrSplit(text, '.');
  return parts.size() == 2 && ReadNumber(parts[0], generation.term) &&
         ReadNumber(parts[1], generation.counter);
}

// "min N start N max N"
bool ReadSettings(const std::string* word, JobSettings& settings) {
  uint64_t least = 0;
  uint64_t start = 0;
  uint64_t most = 0;
  const bool good = word[0] == "min" && ReadNumber(word[1], least) && word[2] == "start" &&
                    ReadNumber(word[3], start) && word[4] == "max" && ReadNumber(word[5], most) &&
                    1 <= least && least <= start && start <= most && most <= kMaxWorkers;
  settings.min_workers = static_cast<uint32_t>(least);
  settings.start_workers = static_cast<uint32_t>(start);
  settings.max_workers = static_cast<uint32_t>(most);
  return good;
}

template <typename Policy, size_t N>
bool ReadPolicy(const std::string& word, const std::array<Policy, N>& all,
                std::optional<Policy>& policy) {
  for (const Policy each : all) {
    if (word == NameOf(each)) policy = each;
  }
  return policy.has_value() || word == kNotSet;
}

template <typename Policy>
std::string TextOf(const std::optional<Policy>& policy) {
  return policy.has_value() ? NameOf(*policy) : kNotSet;
}

std::string TextOf(const JobSettings& settings) {
  return absl::StrCat("min ", settings.min_workers, " start ", settings.start_workers, " max ",
                      settings.max_workers);
}

// "set SETTINGS to SETTINGS loss POLICY late POLICY"
absl::Status ReadChanged(Lines& lines, ChangedSettings& changed) {
  const absl::StatusOr<std::vector<std::string>> words = lines.NextWords(18);
  if (!words.ok()) return words.status();
  const std::vector<std::string>& word = *words;
  const bool good = ReadSettings(&word[1], changed.declared) && word[7] == "to" &&
                    ReadSettings(&word[8], changed.settings) && word[14] == "loss" &&
                    ReadPolicy(word[15], std::array{LossPolicy::kShrink, LossPolicy::kAbort},
                               changed.loss_policy) &&
                    word[16] == "late" &&
                    ReadPolicy(word[17],
                               std::array{LatePolicy::kWait, LatePolicy::kEvict,
                                          LatePolicy::kLeaveOut, LatePolicy::kCarry},
                               changed.late_policy);
  return good ? absl::OkStatus() : lines.Wrong("it is not what an operator has set");
}

// "WORKER", or "WORKER RANKS" for a worker of several trainers.
bool ReadMember(const std::string& line, std::vector<WorkerId>& ids, std::vector<uint32_t>& ranks) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  uint64_t count = 1;
  if (words.size() > 2 || !CheckWorkerId(words[0]).ok()) return false;
  if (words.size() == 2 && (!ReadNumber(words[1], count) || count < 2 || count > kMaxRanks)) {
    return false;
  }
  ids.push_back(words[0]);
  ranks.push_back(static_cast<uint32_t>(count));
  return true;
}

// "job NAME run RUN term TERM generation GENERATION members COUNT", then so many lines, then
// perhaps what an operator has set.
absl::Status ReadJob(Lines& lines, WrittenState& state) {
  const absl::StatusOr<std::vector<std::string>> words = lines.NextWords(10);
  if (!words.ok()) return words.status();
  const std::vector<std::string>& word = *words;
  SavedState job;
  job.run = word[3] == kNoRun ? "" : word[3];
  uint64_t members = 0;
  const bool good = word[0] == "job" && CheckJobName(word[1]).ok() && word[2] == "run" &&
                    CheckRunId(job.run).ok() && word[4] == "term" &&
                    ReadNumber(word[5], job.term) && word[6] == "generation" &&
                    ReadGeneration(word[7], job.membership.generation) && word[8] == "members" &&
                    ReadNumber(word[9], members) && members <= kMaxWorkers;
  if (!good) return lines.Wrong("it is not a job");
  std::vector<WorkerId> list;
  std::vector<uint32_t> ranks;
  for (uint64_t i = 0; i < members; ++i) {
    absl::StatusOr<std::string> worker = lines.Next();
    if (!worker.ok()) return worker.status();
    if (!ReadMember(*worker, list, ranks)) return lines.Wrong("it is not a worker");
  }
  job.membership.members = MemberList::WithRanks(std::move(list), std::move(ranks));
  if (lines.NextBegins(kSet)) {
    absl::Status read = ReadChanged(lines, job.settings.emplace());
    if (!read.ok()) return read;
  }
  if (!state.jobs.emplace(word[1], std::move(job)).second) return lines.Wrong("it has a job twice");
  return absl::OkStatus();
}

}  // namespace

std::string EncodeState(const WrittenState& state) {
  const char* first = kFirstLine;
  std::string body = absl::StrCat("term ", state.term, "\n");
  for (const auto& [name, job] : state.jobs) {
    absl::StrAppend(&body, "job ", name, " run ", job.run.empty() ? kNoRun : job.run, " term ",
                    job.term, " generation ", ToString(job.membership.generation));
    absl::StrAppend(&body, " members ", job.membership.members.size(), "\n");
    const MemberList& members = job.membership.members;
    for (size_t i = 0; i < members.size(); ++i) {
      absl::StrAppend(&body, members[i]);
      if (members.RanksOf(i) > 1) {
        first = kFirstLineOfTwo;
        absl::StrAppend(&body, " ", members.RanksOf(i));
      }
      absl::StrAppend(&body, "\n");
    }
    if (!job.settings.has_value()) continue;
    first = kFirstLineOfTwo;
    absl::StrAppend(&body, kSet, TextOf(job.settings->declared), " to ",
                    TextOf(job.settings->settings), " loss ", TextOf(job.settings->loss_policy),
                    " late ", TextOf(job.settings->late_policy), "\n");
  }
  return absl::StrCat(first, "\n", ChecksumLine(body), "\n", body);
}

absl::StatusOr<WrittenState> DecodeState(std::string_view text) {
  Lines lines(text);
  const absl::StatusOr<std::string> first = lines.Next();
  if (!first.ok()) return first.status();
  if (*first != kFirstLine && *first != kFirstLineOfTwo) {
    return lines.Wrong("it is not a state file of this version");
  }
  const absl::StatusOr<std::string> checksum = lines.Next();
  if (!checksum.ok()) return checksum.status();
  if (*checksum != ChecksumLine(lines.rest())) {
    return lines.Wrong("the checksum does not match the text below it");
  }
  WrittenState state;
  const absl::StatusOr<std::vector<std::string>> term = lines.NextWords(2);
  if (!term.ok()) return term.status();
  if ((*term)[0] != "term" || !ReadNumber((*term)[1], state.term)) {
    return lines.Wrong("it is not a term");
  }
  while (!lines.rest().empty()) {
    if (absl::Status read = ReadJob(lines, state); !read.ok()) return read;
  }
  return state;
}

}  // namespace basin::aggregator

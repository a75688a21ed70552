// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/show.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "aggregator/admin/words.h"
#include "aggregator/ctl/table.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

std::string Generation(const v1::Generation& generation) {
  return absl::StrCat(generation.term(), ".", generation.counter());
}

std::string Standing(const v1::MemberStatus& member) {
  std::vector<std::string> words;
  if (!member.connected()) words.emplace_back("disconnected");
  if (member.recovering()) words.emplace_back("waits for the recovery of its job");
  if (!member.ready() && !member.recovering()) words.emplace_back("loading");
  if (member.finished()) words.emplace_back("finished");
  if (member.draining()) words.emplace_back("draining");
  if (!member.busy().empty()) words.push_back("busy: " + member.busy());
  return absl::StrJoin(words, ", ");
}

// The first of them, and the number of the others.
std::string WaitsFor(const v1::OpenRoundStatus& round) {
  if (round.waiting().empty()) return "";
  const v1::Waiting& first = round.waiting(0);
  return absl::StrCat(
      first.worker(), " (last seen ", Span(first.last_seen_ns()), " ago): ", first.what(),
      first.waited_ns() == 0 ? "" : absl::StrCat(" for ", Span(first.waited_ns())),
      round.waiting_size() == 1 ? "" : absl::StrCat(", and ", round.waiting_size() - 1, " more"));
}

std::string WaitedFor(const v1::RoundStatus& past) {
  const std::string& reason = past.record().value().reason();
  if (!reason.empty() || past.waited_for().empty()) return reason;
  return absl::StrCat(past.waited_for(), " (", Span(past.wait_ns()), ")");
}

// The last arrivals of a round, after the first one, who was left out, and who had its last, late
// contribution in this one: "a 0, b +12ms, c late, b with its last".
constexpr int kMostArrivals = 8;
std::string Arrivals(const v1::RoundSummary& round) {
  std::vector<std::string> arrivals;
  const int first = std::max(0, round.arrivals_size() - kMostArrivals);
  if (first > 0) arrivals.push_back(absl::StrCat(first, " before"));
  for (int i = first; i < round.arrivals_size(); ++i) {
    const uint64_t after = round.arrivals(i).after_ns() - round.first_arrival_ns();
    arrivals.push_back(absl::StrCat(round.arrivals(i).worker(), after == 0 ? " 0" : " +",
                                    after == 0 ? "" : Span(after)));
  }
  for (const std::string& worker : round.late()) {
    arrivals.push_back(absl::StrCat(worker, " late"));
  }
  for (const std::string& worker : round.deferred()) {
    arrivals.push_back(absl::StrCat(worker, " with its last"));
  }
  return absl::StrJoin(arrivals, ", ");
}

// Empty if no round is remembered.
std::string ShowArrivals(const v1::ListRoundsResponse& rounds) {
  TextTable table({"LANE", "ROUND", "LAST", "BY", "OWED", "SINCE", "ARRIVED"});
  bool any = false;
  for (const v1::LaneRounds& lane : rounds.lanes()) {
    for (const v1::RoundSummary& round : lane.recent()) {
      if (round.arrivals().empty()) continue;
      any = true;
      const bool waited = !round.waited_for().empty();
      const uint64_t since = round.age_ns() + round.duration_ns() - round.gather_ns();
      table.Add({lane.lane(), absl::StrCat(round.round()), round.waited_for(),
                 waited ? Span(round.wait_ns()) : "", round.owed(),
                 waited ? absl::StrCat(Span(since), " ago") : "", Arrivals(round)});
    }
  }
  return any ? "\n" + table.Text() : "";
}

// The trainers in the contributions of a round.
uint32_t TrainersOf(const v1::RoundValue& value) {
  uint32_t trainers = 0;
  for (const v1::Contributor& contributor : value.contributors()) {
    trainers += std::max(1U, contributor.ranks());
  }
  return trainers;
}

// The versions that more workers run than any others; of equally many, the first in the list.
std::string UsualSoftware(const v1::ListMembersResponse& members) {
  std::map<std::string, int> workers;
  std::string usual;
  for (const v1::MemberStatus& member : members.members()) {
    if (!member.recovering()) ++workers[member.software()];
  }
  for (const v1::MemberStatus& member : members.members()) {
    if (workers[member.software()] > workers[usual]) usual = member.software();
  }
  return usual;
}

}  // namespace

std::string Show(const v1::ServiceStatus& status) {
  return PrintableText(
             absl::StrCat(
                 "basind ", status.version(), ", ", status.draining() ? "draining" : "serving",
                 " for ", Span(status.uptime_ns()), ", term ", status.term(), ", ",
                 CountOf(status.jobs(), "job"), ", ", CountOf(status.workers(), "worker"),
                 ", memory ", Size(status.buffer_bytes()), " of ",
                 Size(status.buffer_limit_bytes()), ", reduces on ", status.reduce_device(),
                 status.leader().empty() ? "" : absl::StrCat(", ", status.leader())),
             kMaxTextBytes) +
         "\n";
}

std::string Show(const v1::ListJobsResponse& jobs) {
  TextTable table({"JOB", "STATE", "MEMBERS", "JOINERS", "SPARES", "MIN", "MAX", "GENERATION",
                   "MEMORY", "CAUSE"});
  for (const v1::JobStatus& job : jobs.jobs()) {
    table.Add({job.job(), Word(job.state()), absl::StrCat(job.members()),
               absl::StrCat(job.joiners()), absl::StrCat(job.spares()),
               absl::StrCat(job.settings().min_workers()),
               absl::StrCat(job.settings().max_workers()), Generation(job.generation()),
               Size(job.buffer_bytes()), job.cause()});
  }
  return table.Text();
}

std::string Show(const v1::LimitsResponse& limits) {
  TextTable table({"LIMIT", "JOB", "IN USE", "OF", "UNIT"});
  for (const v1::Limit& limit : limits.limits()) {
    const bool bytes = limit.unit() == "bytes";
    table.Add(
        {limit.name(), limit.job(), bytes ? Size(limit.in_use()) : absl::StrCat(limit.in_use()),
         bytes ? Size(limit.limit()) : absl::StrCat(limit.limit()), bytes ? "" : limit.unit()});
  }
  if (limits.memory().empty()) return table.Text();
  TextTable memory({"MEMORY", "IN USE"});
  uint64_t sum = 0;
  for (const v1::MemoryUse& use : limits.memory()) {
    memory.Add({use.kind(), Size(use.bytes())});
    sum += use.bytes();
  }
  memory.Add({"all", Size(sum)});
  return absl::StrCat(table.Text(), "\n", memory.Text());
}

std::string Show(const v1::ListMembersResponse& members) {
  const std::string usual = UsualSoftware(members);
  TextTable table({"WORKER", "ROLE", "RANK", "LAST SEEN", "PROGRESS", "FROM", "STATE", "RUNS"});
  for (const v1::MemberStatus& member : members.members()) {
    table.Add(
        {member.worker(), Word(member.role()), Ranks(member),
         member.recovering() ? "" : Span(member.last_seen_ns()),
         member.recovering() ? "" : absl::StrCat(member.progress()),
         absl::StrCat(member.address(), member.shares_memory() ? ", shared memory" : "",
                      member.shared_device_bytes() > 0
                          ? absl::StrCat(", ", Size(member.shared_device_bytes()), " on its device")
                          : ""),
         Standing(member),
         absl::StrCat(member.software(),
                      member.recovering() || member.software() == usual ? "" : " (most differ)")});
  }
  return table.Text();
}

std::string Show(const v1::Goodput& goodput) {
  uint64_t all = 0;
  uint64_t open = 0;
  for (const v1::TimeUse& use : goodput.uses()) {
    all += use.time_ns();
    open += use.open_ns();
  }
  const auto share = [&](uint64_t time_ns) {
    return all == 0 ? ""
                    : absl::StrFormat("%.1f%%", 100.0 * static_cast<double>(time_ns) /
                                                    static_cast<double>(all));
  };
  TextTable uses({"TIME OF MEMBERS", "IN ALL", "SHARE", "SINCE THE LAST VERDICT"});
  for (const v1::TimeUse& use : goodput.uses()) {
    uses.Add({use.use(), Span(use.time_ns()), share(use.time_ns()), Span(use.open_ns())});
  }
  uses.Add({"all", Span(all), share(all), Span(open)});
  if (goodput.waited_for().empty()) return uses.Text();
  TextTable waits({"WAITED FOR", "IN ALL", "SHARE"});
  for (const v1::WaitedFor& wait : goodput.waited_for()) {
    waits.Add({wait.worker(), Span(wait.time_ns()), share(wait.time_ns())});
  }
  return absl::StrCat(uses.Text(), "\n", waits.Text());
}

std::string Show(const v1::ListShardsResponse& shards) {
  TextTable table({"SHARD", "ENDPOINT", "UP", "HOLDS", "MEMORY", "RECEIVED", "SENT", "LAST EVENT",
                   "REDUCES IN", "STATE"});
  for (const v1::ShardStatus& shard : shards.shards()) {
    table.Add({NameOf(shard), shard.endpoint(), Span(shard.up_ns()),
               Size(shard.parked_bytes() + shard.held_result_bytes()),
               shard.memory_bytes() == 0 ? "" : Size(shard.memory_bytes()),
               Size(shard.contribution_bytes()), Size(shard.result_bytes()),
               shard.shard() == 0 ? "" : absl::StrCat(Span(shard.last_event_ns()), " ago"),
               shard.reduce_ns() == 0 ? "" : Span(shard.reduce_ns()), TroubleOf(shard)});
  }
  TextTable parts({"JOB", "SHARD", "PART", "SHARE", "STATE"});
  bool any = false;
  // By job, then by shard.
  const int jobs = shards.shards().empty() ? 0 : shards.shards(0).jobs_size();
  for (int job = 0; job < jobs; ++job) {
    for (const v1::ShardStatus& shard : shards.shards()) {
      if (job >= shard.jobs_size()) continue;
      any = true;
      const v1::ShardOfJob& part = shard.jobs(job);
      parts.Add({part.job(), NameOf(shard), Size(part.bytes()), ShareOf(part), TroubleOf(part)});
    }
  }
  return any ? absl::StrCat(table.Text(), "\n", parts.Text()) : table.Text();
}

std::string Show(const v1::ListRoundsResponse& rounds) {
  TextTable table(
      {"LANE", "ROUND", "STATE", "TOOK", "OP", "CONTRIBUTORS", "DIVISOR", "NORM", "WAITED FOR"});
  for (const v1::LaneRounds& lane : rounds.lanes()) {
    if (lane.has_open()) {
      table.Add({lane.lane(), absl::StrCat(lane.open().round()),
                 absl::StrCat(Word(lane.open().phase()), lane.open().pull_mode() ? ", pull" : ""),
                 Span(lane.open().open_ns()), "", "", "", "", WaitsFor(lane.open())});
    }
    for (const v1::RoundStatus& past : lane.past()) {
      const v1::RoundValue& value = past.record().value();
      const bool committed = value.outcome() == v1::OUTCOME_COMMITTED;
      table.Add({lane.lane(), absl::StrCat(past.record().round()), Word(value.outcome()),
                 past.duration_ns() == 0 ? "" : Span(past.duration_ns()),
                 committed ? Word(value.spec().op()) : "",
                 committed ? absl::StrCat(TrainersOf(value), " of ", value.world_size()) : "",
                 committed ? absl::StrCat(value.divisor()) : "",
                 past.has_gradient_norm() ? absl::StrFormat("%.4g", past.gradient_norm()) : "",
                 WaitedFor(past)});
    }
    if (!lane.has_open() && lane.past().empty()) {
      table.Add({lane.lane(), "", "no round yet", "", "", "", "", "", ""});
    }
  }
  return absl::StrCat(table.Text(), ShowArrivals(rounds));
}

std::string Show(const v1::Event& event) {
  std::string what = absl::StrCat(event.sequence(), "  ", event.kind());
  if (!event.job().empty()) absl::StrAppend(&what, "  job=", event.job());
  if (!event.worker().empty()) absl::StrAppend(&what, "  worker=", event.worker());
  if (!event.lane().empty()) absl::StrAppend(&what, "  lane=", event.lane());
  if (event.round() > 0) absl::StrAppend(&what, "  round=", event.round());
  if (!event.text().empty()) absl::StrAppend(&what, "  ", event.text());
  return PrintableText(what, 2 * kMaxTextBytes) + "\n";
}

std::string Show(const v1::ChangeResponse& change) {
  return PrintableText(change.text(), kMaxTextBytes) + "\n";
}

// Many lines, from whose names the aggregator has removed what cannot be printed. They are checked
// once more, line by line, because a terminal obeys them.
std::string Show(const v1::DumpResponse& dump) {
  std::string text;
  for (const absl::string_view line : absl::StrSplit(dump.text(), '\n')) {
    absl::StrAppend(&text, PrintableText(std::string(line), line.size()), "\n");
  }
  if (absl::EndsWith(text, "\n\n")) text.pop_back();
  return text;
}

}  // namespace basin::aggregator

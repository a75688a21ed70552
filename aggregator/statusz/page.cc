// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/statusz/page.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "aggregator/admin/words.h"
#include "aggregator/statusz/html.h"
#include "aggregator/statusz/page_style.h"
#include "aggregator/statusz/plot.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

// What a person reads. basinctl has the rest.
constexpr int kMostWaiting = 16;
constexpr int kMostMembers = 64;
constexpr int kMostLanes = 8;
constexpr int kRoundsInTable = 8;
constexpr size_t kMostStragglers = 8;
constexpr size_t kMostJobs = 200;
constexpr int kMostShardsShown = 64;

constexpr char kHead[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
    "<meta http-equiv=\"refresh\" content=\"5\"><link rel=\"icon\" href=\"data:,\">";

// A span of time; "" for none.
std::string Time(uint64_t ns) {
  if (ns == 0) return "";
  return ns < 1000000 ? "<1ms" : Span(ns);
}

// How long ago something was; "now" below a millisecond.
std::string Ago(uint64_t ns) { return ns < 1000000 ? "now" : absl::StrCat(Span(ns), " ago"); }

enum class Kind : uint8_t { kName, kShort, kNumber };

struct Column {
  std::string_view title;
  Kind kind;
  bool wide = false;  // Not on a phone.

  // For the style sheet.
  std::string Class() const {
    const char* name = kind == Kind::kName ? "name" : kind == Kind::kShort ? "short" : "number";
    return absl::StrCat(name, wide ? " wide" : "");
  }
};

// A table with a row of titles.
class Table {
 public:
  Table(std::initializer_list<Column> columns) : columns_(columns) {
    html_.Tag("<div class=\"scroll\"><table><thead><tr>");
    for (const Column& column : columns_) {
      html_.Tag("<th class=\"").Text(column.Class()).Tag("\">").Text(column.title).Tag("</th>");
    }
    html_.Tag("</tr></thead><tbody>");
  }

  // One cell for each column.
  void Row(const std::vector<std::string>& cells) {
    html_.Tag("<tr>");
    for (size_t i = 0; i < columns_.size(); ++i) {
      html_.Tag("<td class=\"").Text(columns_[i].Class()).Tag("\">").Text(cells[i]).Tag("</td>");
    }
    html_.Tag("</tr>");
  }

  Html Take() {
    html_.Tag("</tbody></table></div>");
    return std::move(html_);
  }

 private:
  const std::vector<Column> columns_;
  Html html_;
};

void AddMore(Html& html, int all, int shown, std::string_view what, std::string_view command) {
  if (all <= shown) return;
  html.Tag("<p class=\"quiet\">")
      .Text(absl::StrCat("And ", all - shown, " more ", std::string(what), ": ",
                         std::string(command), "."))
      .Tag("</p>");
}

// ---- the service

void AddState(Html& html, v1::JobState state) {
  if (state == v1::JOB_STATE_RUNNING || state == v1::JOB_STATE_FINISHED) {
    html.Tag("<span class=\"good\">");
  } else if (state == v1::JOB_STATE_PAUSED || state == v1::JOB_STATE_HALTED) {
    html.Tag("<span class=\"bad\">");
  } else {
    html.Tag("<span class=\"warm\">");
  }
  html.Text(Word(state)).Tag("</span>");
}

void AddService(Html& html, const v1::ServiceStatus& service) {
  html.Tag("<header><h1>Basin</h1><p>");
  service.draining() ? html.Tag("<span class=\"warm\">draining</span>")
                     : html.Tag("<span class=\"good\">serving</span>");
  html.Text(absl::StrCat(" for ", Span(service.uptime_ns()), ", ", CountOf(service.jobs(), "job"),
                         ", ", CountOf(service.workers(), "worker"), ", memory ",
                         Size(service.buffer_bytes()), " of ", Size(service.buffer_limit_bytes())))
      .Tag("</p><p class=\"quiet\">")
      .Text(absl::StrCat("basind ", service.version(), " "))
      .Tag("<a href=\"/metrics\">metrics</a></p></header>");
}

void AddJobs(Html& html, const StatusView& view) {
  if (view.jobs.empty()) {
    html.Tag("<div class=\"box\">No job yet: no worker has connected.</div>");
    return;
  }
  html.Tag(
      "<div class=\"box scroll\"><table><thead><tr><th>Job</th><th>State</th>"
      "<th class=\"number\">Members</th><th class=\"number\">Rounds</th>"
      "<th class=\"wide\">Waits for</th></tr>"
      "</thead><tbody>");
  for (size_t i = 0; i < view.jobs.size() && i < kMostJobs; ++i) {
    const v1::JobStatus& job = view.jobs[i];
    html.Tag("<tr><td class=\"name\">");
    if (i < view.details.size()) {
      html.Tag("<a href=\"#job-").Text(job.job()).Tag("\">").Text(job.job()).Tag("</a>");
    } else {
      html.Text(job.job());
    }
    html.Tag("</td><td class=\"short\">");
    AddState(html, job.state());
    html.Tag("</td><td class=\"number\">")
        .Text(absl::StrCat(job.members(), " of ", job.settings().max_workers()))
        .Tag("</td><td class=\"number\">")
        .Text(absl::StrCat(job.committed_rounds()))
        .Tag("</td><td class=\"wide\">")
        .Text(job.cause())
        .Tag("</td></tr>");
  }
  html.Tag("</tbody></table>");
  AddMore(html, static_cast<int>(view.jobs.size()), kMostJobs, "jobs", "basinctl status");
  html.Tag("</div>");
}

// ---- one job

void AddFacts(Html& html, const v1::JobStatus& job) {
  std::vector<std::string> facts = {
      absl::StrCat(CountOf(job.members(), "member"), " (", job.settings().min_workers(), " to ",
                   job.settings().max_workers(), ")"),
      absl::StrCat("generation ", job.generation().counter()),
      absl::StrCat(CountOf(job.committed_rounds(), "round"), " committed"),
  };
  if (job.aborted_rounds() > 0) facts.push_back(absl::StrCat(job.aborted_rounds(), " aborted"));
  if (job.joiners() > 0) facts.push_back(CountOf(job.joiners(), "joiner"));
  if (job.spares() > 0) facts.push_back(CountOf(job.spares(), "spare"));
  facts.push_back("memory " + Size(job.buffer_bytes()));
  if (job.goodput().has_ratio()) {
    facts.push_back(absl::StrFormat("goodput %.1f%%", 100 * job.goodput().ratio()));
  }
  html.Tag("<p class=\"quiet\">").Text(absl::StrJoin(facts, ", ")).Tag("</p>");
  if (!job.cause().empty()) html.Tag("<p>").Text(job.cause()).Tag("</p>");
}

// The members that the others wait for come first, as in the answer of the admin service.
void AddWaiting(Html& html, const v1::OpenRoundStatus& open) {
  if (open.waiting().empty()) return;
  Table table({{"Waits for", Kind::kName},
               {"Expected next", Kind::kName},
               {"Waited", Kind::kNumber},
               {"Missing", Kind::kNumber, true},
               {"Last seen", Kind::kNumber, true}});
  for (int i = 0; i < open.waiting_size() && i < kMostWaiting; ++i) {
    const v1::Waiting& waiting = open.waiting(i);
    table.Row({waiting.worker(), waiting.what(), Time(waiting.waited_ns()),
               waiting.missing_chunks() == 0 ? "" : CountOf(waiting.missing_chunks(), "chunk"),
               Ago(waiting.last_seen_ns())});
  }
  html.Add(table.Take());
  AddMore(html, open.waiting_size(), kMostWaiting, "workers", "basinctl rounds JOB");
}

void AddOpenRound(Html& html, const v1::LaneRounds& lane) {
  if (!lane.has_open()) {
    html.Tag("<p class=\"quiet\">No round is open.</p>");
    return;
  }
  const v1::OpenRoundStatus& open = lane.open();
  html.Tag("<p>")
      .Text(absl::StrCat("Round ", open.round(), " is open since ", Span(open.open_ns()), ": ",
                         open.phase() == v1::ROUND_PHASE_PREPARED
                             ? "its result is reduced, and members stage it"
                             : "members contribute",
                         open.pull_mode() ? ", in pull mode" : "", "."))
      .Tag("</p>");
  AddWaiting(html, open);
}

// ---- past rounds

uint64_t RestOf(const v1::RoundSummary& round) {
  const uint64_t known = round.gather_ns() + round.wait_ns();
  return round.duration_ns() > known ? round.duration_ns() - known : 0;
}

// How long ago the wait for the last contribution alone began.
uint64_t SinceOf(const v1::RoundSummary& round) {
  return round.age_ns() + round.duration_ns() - round.gather_ns();
}

// Under a plot: from zero or the least to the most, and the newest.
void AddRange(Html& html, const std::string& left, const std::string& right) {
  html.Tag("<div class=\"range\"><span>").Text(left).Tag("</span><span>").Text(right);
  html.Tag("</span></div>");
}

void AddTimePlot(Html& html, const v1::LaneRounds& lane) {
  std::vector<BarParts> bars;
  uint64_t longest = 0;
  for (auto round = lane.recent().rbegin(); round != lane.recent().rend(); ++round) {
    longest = std::max(longest, round->duration_ns());
    bars.push_back({static_cast<double>(round->gather_ns()), static_cast<double>(round->wait_ns()),
                    static_cast<double>(RestOf(*round))});
  }
  html.Tag("<div><h4>Time of a round</h4>")
      .Add(BarPlot("Time of the last rounds: contributing, waiting for the last worker, the rest",
                   bars));
  AddRange(html, absl::StrCat("last ", CountOf(bars.size(), "round")),
           absl::StrCat("longest ", Time(longest)));
  html.Tag(
      "<div class=\"keys\"><span><i class=\"key part0\"></i>contribute</span>"
      "<span><i class=\"key part1\"></i>wait for the last</span>"
      "<span><i class=\"key part2\"></i>reduce, stage</span></div></div>");
}

// `value_of(round)` is absent where a round has none. Nothing is added if no round has one.
template <typename ValueOf>
void AddLinePlot(Html& html, const std::string& title, const v1::LaneRounds& lane,
                 ValueOf value_of) {
  std::vector<std::optional<double>> values;
  std::optional<double> newest;
  double largest = 0;
  for (auto round = lane.recent().rbegin(); round != lane.recent().rend(); ++round) {
    values.push_back(value_of(*round));
    if (!values.back().has_value()) continue;
    newest = values.back();
    largest = std::max(largest, *newest);
  }
  if (!newest.has_value()) return;
  html.Tag("<div><h4>").Text(title).Tag("</h4>").Add(LinePlot(title, values));
  AddRange(html, absl::StrFormat("now %.4g", *newest), absl::StrFormat("largest %.4g", largest));
  html.Tag("</div>");
}

// The unit in which the newest round counts its batch.
void AddBatchPlot(Html& html, const v1::LaneRounds& lane) {
  const auto plot = [&](const char* unit, auto has, auto count) {
    AddLinePlot(html, absl::StrCat("Effective batch, ", unit), lane,
                [&](const v1::RoundSummary& round) -> std::optional<double> {
                  const v1::Counts& batch = round.effective_batch();
                  if (!(batch.*has)()) return std::nullopt;
                  return static_cast<double>((batch.*count)());
                });
  };
  const v1::Counts& newest = lane.recent(0).effective_batch();
  if (newest.has_samples()) {
    plot("samples", &v1::Counts::has_samples, &v1::Counts::samples);
  } else if (newest.has_tokens()) {
    plot("tokens", &v1::Counts::has_tokens, &v1::Counts::tokens);
  } else if (newest.has_micro_batches()) {
    plot("micro-batches", &v1::Counts::has_micro_batches, &v1::Counts::micro_batches);
  }
}

void AddPastRounds(Html& html, const v1::LaneRounds& lane) {
  if (lane.recent().empty()) return;
  html.Tag("<div class=\"plots\">");
  AddTimePlot(html, lane);
  AddLinePlot(html, "Gradient norm", lane,
              [](const v1::RoundSummary& round) -> std::optional<double> {
                if (!round.has_gradient_norm()) return std::nullopt;
                return round.gradient_norm();
              });
  AddBatchPlot(html, lane);
  html.Tag("</div>");
  Table table({{"Round", Kind::kNumber},
               {"Outcome", Kind::kShort},
               {"Counted", Kind::kNumber, true},
               {"Took", Kind::kNumber},
               {"Contribute", Kind::kNumber, true},
               {"Wait", Kind::kNumber},
               {"Reduce, stage", Kind::kNumber, true},
               {"Last", Kind::kName},
               {"Owed", Kind::kName, true},
               {"Since", Kind::kNumber, true}});
  for (int i = 0; i < lane.recent_size() && i < kRoundsInTable; ++i) {
    const v1::RoundSummary& round = lane.recent(i);
    const bool committed = round.outcome() == v1::OUTCOME_COMMITTED;
    table.Row({absl::StrCat(round.round()), Word(round.outcome()),
               committed ? absl::StrCat(round.contributors(), " of ", round.world_size()) : "",
               Time(round.duration_ns()), Time(round.gather_ns()), Time(round.wait_ns()),
               committed ? Time(RestOf(round)) : "", round.waited_for(), round.owed(),
               round.waited_for().empty() ? "" : Ago(SinceOf(round))});
  }
  html.Add(table.Take());
}

// ---- its workers

// What became of the members' time.
void AddGoodput(Html& html, const v1::Goodput& goodput) {
  uint64_t all = 0;
  for (const v1::TimeUse& use : goodput.uses()) all += use.time_ns();
  if (all == 0) return;
  html.Tag("<div><h3>Time of the members</h3>");
  Table table({{"Use", Kind::kName},
               {"In all", Kind::kNumber},
               {"Share", Kind::kNumber},
               {"Since the last verdict", Kind::kNumber, true}});
  for (const v1::TimeUse& use : goodput.uses()) {
    const double share = static_cast<double>(use.time_ns()) / static_cast<double>(all);
    table.Row({use.use(), Time(use.time_ns()), absl::StrFormat("%.1f%%", 100 * share),
               Time(use.open_ns())});
  }
  html.Add(table.Take()).Tag("</div>");
}

void AddStragglers(Html& html, const v1::ListRoundsResponse& rounds) {
  const std::vector<StragglerRank> ranks = RankStragglers(rounds);
  if (ranks.empty()) return;
  html.Tag("<div><h3>Stragglers of the last rounds</h3>");
  Table table({{"Worker", Kind::kName}, {"Rounds", Kind::kNumber}, {"Waited", Kind::kNumber}});
  for (size_t i = 0; i < ranks.size() && i < kMostStragglers; ++i) {
    table.Row({ranks[i].worker, absl::StrCat(ranks[i].rounds), Time(ranks[i].waited_ns)});
  }
  html.Add(table.Take()).Tag("</div>");
}

std::string StandingOf(const v1::MemberStatus& member) {
  if (member.recovering()) return "waits for the recovery of its job";
  std::vector<std::string> words;
  if (!member.connected()) words.emplace_back("disconnected");
  if (!member.ready()) words.emplace_back("loading");
  if (member.finished()) words.emplace_back("finished");
  if (member.draining()) words.emplace_back("draining");
  if (!member.busy().empty()) words.emplace_back("busy");  // The reason is the trainer's own text.
  return absl::StrJoin(words, ", ");
}

void AddMembers(Html& html, const v1::ListMembersResponse& members) {
  html.Tag("<div><h3>Workers</h3>");
  Table table({{"Worker", Kind::kName},
               {"Rank", Kind::kNumber},
               {"Last seen", Kind::kNumber},
               {"State", Kind::kShort}});
  for (int i = 0; i < members.members_size() && i < kMostMembers; ++i) {
    const v1::MemberStatus& member = members.members(i);
    std::string state = StandingOf(member);
    if (state.empty()) state = Word(member.role());
    table.Row({member.worker(), Ranks(member),
               member.recovering() ? "" : Ago(member.last_seen_ns()), state});
  }
  html.Add(table.Take());
  AddMore(html, members.members_size(), kMostMembers, "workers", "basinctl members JOB");
  html.Tag("</div>");
}

// The endpoints and the reasons of workers are left to the admin service.
void AddShards(Html& html, const StatusView& view) {
  if (view.shards.shards_size() < 2) return;
  html.Tag("<section><h2>Shards</h2>");
  Table table({{"Shard", Kind::kName},
               {"Up", Kind::kNumber},
               {"Holds", Kind::kNumber},
               {"Memory", Kind::kNumber, true},
               {"Received", Kind::kNumber, true},
               {"Sent", Kind::kNumber, true},
               {"Last event", Kind::kNumber},
               {"Reduces in", Kind::kNumber},
               {"State", Kind::kShort}});
  for (int i = 0; i < view.shards.shards_size() && i < kMostShardsShown; ++i) {
    const v1::ShardStatus& shard = view.shards.shards(i);
    const bool own = shard.shard() == 0;
    table.Row({NameOf(shard), Span(own ? view.service.uptime_ns() : shard.up_ns()),
               Size(shard.parked_bytes() + shard.held_result_bytes()),
               shard.memory_bytes() == 0 ? "" : Size(shard.memory_bytes()),
               Size(shard.contribution_bytes()), Size(shard.result_bytes()),
               own ? "" : Ago(shard.last_event_ns()), Time(shard.reduce_ns()), TroubleOf(shard)});
  }
  html.Add(table.Take());
  AddMore(html, view.shards.shards_size(), kMostShardsShown, "shards", "basinctl shards");
  html.Tag("</section>");
}

// The part of the job that each shard has.
void AddParts(Html& html, const StatusView& view, const std::string& job) {
  if (view.shards.shards_size() < 2) return;
  html.Tag("<div><h3>Shards</h3>");
  Table table({{"Shard", Kind::kName},
               {"Part", Kind::kNumber},
               {"Share", Kind::kNumber},
               {"State", Kind::kShort}});
  for (int i = 0; i < view.shards.shards_size() && i < kMostShardsShown; ++i) {
    const v1::ShardStatus& shard = view.shards.shards(i);
    for (const v1::ShardOfJob& part : shard.jobs()) {
      if (part.job() != job) continue;
      table.Row({NameOf(shard), Size(part.bytes()), ShareOf(part),
                 !part.left_out().empty()       ? "left out"
                 : part.out_of_reach_size() > 0 ? "out of reach"
                                                : ""});
    }
  }
  html.Add(table.Take()).Tag("</div>");
}

// Each call has a lane: only open ones are of interest.
bool IsShown(const v1::LaneRounds& lane) {
  return lane.kind() == v1::LANE_KIND_GRADIENT || lane.has_open();
}

void AddJob(Html& html, const StatusView& all, const JobDetails& view) {
  html.Tag("<section id=\"job-").Text(view.job.job()).Tag("\"><h2>").Text(view.job.job());
  html.Tag(" ");
  AddState(html, view.job.state());
  html.Tag("</h2>");
  AddFacts(html, view.job);
  int shown = 0;
  for (const v1::LaneRounds& lane : view.rounds.lanes()) {
    if (!IsShown(lane) || ++shown > kMostLanes) continue;
    html.Tag("<h3>Lane ")
        .Text(lane.lane())
        .Tag(" <span class=\"quiet\">")
        .Text(absl::StrCat(CountOf(lane.tensors(), "tensor"), ", ", Size(lane.bytes())))
        .Tag("</span></h3>");
    AddOpenRound(html, lane);
    if (lane.kind() == v1::LANE_KIND_GRADIENT) AddPastRounds(html, lane);
  }
  AddMore(html, shown, kMostLanes, "lanes", "basinctl rounds JOB");
  html.Tag("<div class=\"columns\">");
  AddGoodput(html, view.job.goodput());
  AddStragglers(html, view.rounds);
  AddMembers(html, view.members);
  AddParts(html, all, view.job.job());
  html.Tag("</div></section>");
}

void AddEvents(Html& html, const StatusView& view) {
  if (view.events.empty()) return;
  html.Tag("<section><h2>Events</h2><p class=\"quiet\">The reasons are in the log and in ")
      .Text("basinctl events.")
      .Tag("</p>");
  Table table({{"When", Kind::kShort},
               {"Event", Kind::kShort},
               {"Job", Kind::kName},
               {"Worker", Kind::kName},
               {"Lane", Kind::kName, true},
               {"Round", Kind::kNumber, true}});
  for (const v1::Event& event : view.events) {
    table.Row({Ago(event.age_ns()), event.kind(), event.job(), event.worker(), event.lane(),
               event.round() == 0 ? "" : absl::StrCat(event.round())});
  }
  html.Add(table.Take()).Tag("</section>");
}

}  // namespace

std::vector<StragglerRank> RankStragglers(const v1::ListRoundsResponse& rounds) {
  std::map<std::string, StragglerRank> by_worker;
  for (const v1::LaneRounds& lane : rounds.lanes()) {
    for (const v1::RoundSummary& round : lane.recent()) {
      if (round.waited_for().empty()) continue;
      StragglerRank& rank = by_worker[round.waited_for()];
      rank.worker = round.waited_for();
      ++rank.rounds;
      rank.waited_ns += round.wait_ns();
    }
  }
  std::vector<StragglerRank> ranks;
  ranks.reserve(by_worker.size());
  for (auto& [worker, rank] : by_worker) ranks.push_back(std::move(rank));
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const auto& a, const auto& b) { return a.waited_ns > b.waited_ns; });
  return ranks;
}

std::string StatusPage(const StatusView& view) {
  Html html;
  html.Tag(kHead).Tag(kPageStyle).Tag("<title>Basin: ");
  const auto held_up = std::count_if(view.jobs.begin(), view.jobs.end(),
                                     [](const auto& job) { return IsHeldUp(job.state()); });
  html.Text(held_up > 0 ? absl::StrCat(CountOf(static_cast<uint64_t>(held_up), "job"), " held up")
                        : CountOf(view.jobs.size(), "job"))
      .Tag("</title></head><body>");
  AddService(html, view.service);
  AddJobs(html, view);
  AddShards(html, view);
  for (const JobDetails& job : view.details) AddJob(html, view, job);
  AddEvents(html, view);
  html.Tag("</body></html>\n");
  return html.Take();
}

std::string NoStatusPage() {
  Html html;
  html.Tag(kHead)
      .Tag(kPageStyle)
      .Tag(
          "<title>Basin: no answer</title></head><body><h1>Basin</h1><p class=\"bad\">The event "
          "loop "
          "does not answer.</p><p>See <a href=\"/livez\">/livez</a> and basin_loop_delay_seconds "
          "in "
          "<a href=\"/metrics\">/metrics</a>.</p></body></html>\n");
  return html.Take();
}

}  // namespace basin::aggregator

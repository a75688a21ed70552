// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/statusz/page.h"

#include <limits>
#include <optional>
#include <string>

#include "aggregator/statusz/html.h"
#include "aggregator/statusz/plot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHostile[] = "<script>alert(1)</script>\" onload='x' & \xE2\x80\xAE";

v1::RoundSummary Round(uint64_t number, const std::string& waited_for, uint64_t wait_ms) {
  v1::RoundSummary round;
  round.set_round(number);
  round.set_outcome(v1::OUTCOME_COMMITTED);
  round.set_contributors(2);
  round.set_world_size(3);
  round.set_duration_ns(900'000'000);
  round.set_gather_ns(100'000'000);
  round.set_wait_ns(wait_ms * 1'000'000);
  round.set_waited_for(waited_for);
  round.set_gradient_norm(2.5);
  round.mutable_effective_batch()->set_samples(64);
  return round;
}

TEST(StatusPage, HasTheGoodputOfAJobAndWhatTheLastOwed) {
  StatusView view;
  JobDetails job;
  job.job.set_job("vision");
  job.job.mutable_goodput()->set_ratio(0.75);
  for (const auto& [use, seconds] : {std::pair("worked", 6), std::pair("waiting", 2)}) {
    v1::TimeUse& entry = *job.job.mutable_goodput()->add_uses();
    entry.set_use(use);
    entry.set_time_ns(static_cast<uint64_t>(seconds) * 1'000'000'000);
  }
  job.job.mutable_goodput()->mutable_uses(1)->set_open_ns(500'000'000);
  v1::LaneRounds& lane = *job.rounds.add_lanes();
  lane.set_kind(v1::LANE_KIND_GRADIENT);
  *lane.add_recent() = Round(7, "w1", 400);
  lane.mutable_recent(0)->set_owed("layer3.weight");
  view.jobs.push_back(job.job);
  view.details.push_back(job);
  const std::string page = StatusPage(view);
  EXPECT_THAT(page, HasSubstr("goodput 75.0%"));
  EXPECT_THAT(page, HasSubstr("waiting</td><td class=\"number\">2s</td>"
                              "<td class=\"number\">25.0%</td>"
                              "<td class=\"number wide\">500ms</td>"));
  EXPECT_THAT(page, HasSubstr("layer3.weight"));
}

// A view in which every text that a peer can choose is `name`.
StatusView ViewWith(const std::string& name) {
  StatusView view;
  view.service.set_version("1.2.3");
  JobDetails job;
  job.job.set_job(name);
  job.job.set_run(name);
  job.job.set_cause(name);
  job.job.set_state(v1::JOB_STATE_PAUSED);
  job.job.set_members(2);
  v1::MemberStatus& member = *job.members.add_members();
  member.set_worker(name);
  member.set_busy(name);
  member.set_address(name);
  v1::LaneRounds& lane = *job.rounds.add_lanes();
  lane.set_lane(name);
  lane.set_kind(v1::LANE_KIND_GRADIENT);
  v1::Waiting& waiting = *lane.mutable_open()->add_waiting();
  waiting.set_worker(name);
  waiting.set_what(name);
  *lane.add_recent() = Round(7, name, 400);
  view.jobs.push_back(job.job);
  view.details.push_back(job);
  v1::Event event;
  event.set_kind(name);
  event.set_job(name);
  event.set_worker(name);
  event.set_lane(name);
  event.set_text("what only the admin service shows");
  for (const uint32_t number : {0, 1}) {
    v1::ShardStatus& shard = *view.shards.add_shards();
    shard.set_shard(number);
    shard.set_name(name);
    shard.add_jobs()->set_job(name);
  }
  view.events.push_back(event);
  return view;
}

TEST(StatusPage, Fault_S7_HostileNamesAreOnlyText) {
  const std::string page = StatusPage(ViewWith(kHostile));
  EXPECT_THAT(page,
              HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&#39;x&#39; &amp; ?"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("onload='")));
  EXPECT_THAT(page, Not(HasSubstr("\xE2\x80\xAE"))) << "a change of direction";
  EXPECT_EQ(StatusPage(ViewWith("plain")).find('\0'), std::string::npos);
}

TEST(StatusPage, TextsOfTrainersAndOperatorsAreLeftToTheAdminService) {
  StatusView view = ViewWith("name");
  view.details[0].members.mutable_members(0)->set_busy("saves /secret/path");
  view.details[0].members.mutable_members(0)->set_address("10.1.2.3:4");
  view.details[0].job.set_run("secret-run");
  const std::string page = StatusPage(view);
  EXPECT_THAT(page, AllOf(Not(HasSubstr("/secret/path")), Not(HasSubstr("10.1.2.3")),
                          Not(HasSubstr("secret-run")), Not(HasSubstr("only the admin"))));
  EXPECT_THAT(page, HasSubstr("busy"));
}

TEST(StatusPage, NamesWhomTheOpenRoundWaitsForAndForWhat) {
  StatusView view = ViewWith("name");
  v1::OpenRoundStatus& open = *view.details[0].rounds.mutable_lanes(0)->mutable_open();
  open.set_round(12);
  open.set_open_ns(8'000'000'000);
  open.mutable_waiting(0)->set_worker("trainer-7");
  open.mutable_waiting(0)->set_what("layer3.weight");
  open.mutable_waiting(0)->set_waited_ns(6'100'000'000);
  EXPECT_THAT(StatusPage(view),
              AllOf(HasSubstr("Round 12 is open since 8s"), HasSubstr("trainer-7"),
                    HasSubstr("layer3.weight"), HasSubstr("6.1s")));
}

TEST(StatusPage, SplitsTheTimeOfARound) {
  // 900 ms are 100 of contributing, 400 of waiting and 400 of the rest.
  EXPECT_THAT(StatusPage(ViewWith("w")),
              HasSubstr("<td class=\"number wide\">2 of 3</td><td class=\"number\">900ms</td>"
                        "<td class=\"number wide\">100ms</td><td class=\"number\">400ms</td>"
                        "<td class=\"number wide\">400ms</td><td class=\"name\">w</td>"));
}

TEST(StatusPage, IsBoundedHoweverMuchThereIs) {
  StatusView view = ViewWith("name");
  JobDetails& job = view.details[0];
  for (int i = 0; i < 1000; ++i) *job.rounds.add_lanes() = job.rounds.lanes(0);
  for (int i = 0; i < 10000; ++i) *job.members.add_members() = job.members.members(0);
  for (int i = 0; i < 10000; ++i) {
    *job.rounds.mutable_lanes(0)->mutable_open()->add_waiting() =
        job.rounds.lanes(0).open().waiting(0);
  }
  for (int i = 0; i < 10000; ++i) *view.shards.add_shards() = view.shards.shards(1);
  const size_t one_job = StatusPage(view).size();
  EXPECT_LT(one_job, 300'000u);
  EXPECT_THAT(StatusPage(view), HasSubstr("more workers: basinctl members JOB"));
  view.jobs.resize(10000, view.jobs[0]);
  EXPECT_LT(StatusPage(view).size(), one_job + 200'000u);
}

TEST(StatusPage, HasTheShardsAndTheirPartsOfAJobButNoAddress) {
  StatusView view = ViewWith("vision");
  view.shards.Clear();
  view.service.set_uptime_ns(60'000'000'000);
  v1::ShardStatus& own = *view.shards.add_shards();
  own.set_parked_bytes(1 << 20);
  EXPECT_THAT(StatusPage(view), Not(HasSubstr("Shards"))) << "without any";
  v1::ShardStatus& shard = *view.shards.add_shards();
  shard.set_shard(1);
  shard.set_name("s-1");
  shard.set_endpoint("10.1.2.3:29600");
  shard.set_up_ns(5'000'000'000);
  shard.set_reduce_ns(40'000'000);
  shard.set_slow(true);
  v1::ShardOfJob& part = *shard.add_jobs();
  part.set_job("vision");
  part.set_bytes(1 << 20);
  part.set_job_bytes(3 << 20);
  v1::ShardOutOfReach& by = *part.add_out_of_reach();
  by.set_worker("w");
  by.set_why("it cannot reach shard s-1 at 10.1.2.3:29600");
  const std::string page = StatusPage(view);
  EXPECT_THAT(page, AllOf(HasSubstr("<td class=\"name\">aggregator</td>"
                                    "<td class=\"number\">1m</td>"
                                    "<td class=\"number\">1.0MiB</td>"),
                          HasSubstr("<td class=\"name\">s-1</td><td class=\"number\">5s</td>"),
                          HasSubstr("40ms"), HasSubstr("slow, out of reach of 1 worker"),
                          HasSubstr("33.3%")));
  EXPECT_THAT(page, Not(HasSubstr("10.1.2.3")));
}

TEST(StatusPage, WithoutJobsSaysSo) {
  EXPECT_THAT(StatusPage(StatusView{}), HasSubstr("No job yet"));
  EXPECT_THAT(NoStatusPage(), HasSubstr("does not answer"));
}

TEST(Stragglers, TheOneThatCostMostComesFirst) {
  v1::ListRoundsResponse rounds;
  v1::LaneRounds& lane = *rounds.add_lanes();
  *lane.add_recent() = Round(4, "often", 10);
  *lane.add_recent() = Round(3, "once", 500);
  *lane.add_recent() = Round(2, "often", 10);
  *lane.add_recent() = Round(1, "", 0);
  EXPECT_THAT(
      RankStragglers(rounds),
      ElementsAre(AllOf(Field(&StragglerRank::worker, "once"), Field(&StragglerRank::rounds, 1u),
                        Field(&StragglerRank::waited_ns, 500'000'000u)),
                  AllOf(Field(&StragglerRank::worker, "often"), Field(&StragglerRank::rounds, 2u),
                        Field(&StragglerRank::waited_ns, 20'000'000u))));
}

TEST(Plot, ALineIsInterruptedWhereAValueIsMissing) {
  const double infinite = std::numeric_limits<double>::infinity();
  const std::string svg = LinePlot("norm", {1, 2, std::nullopt, infinite, 2}).Take();
  EXPECT_THAT(svg, HasSubstr("<polyline points=\"0.0,31.5 75.0,3.0\"/>"));
  EXPECT_THAT(svg, HasSubstr("<circle r=\"2\" cx=\"300.0\" cy=\"3.0\"/>")) << "a single point";
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("inf")), Not(HasSubstr("nan"))));
  EXPECT_THAT(LinePlot("nothing", {}).Take(), Not(HasSubstr("polyline")));
}

TEST(Plot, BarsAreStackedFromTheBottom) {
  const std::string svg = BarPlot("time", {{1, 2, 1}, {0, 0, 2}}).Take();
  EXPECT_THAT(svg, HasSubstr("<rect class=\"part0\" x=\"0.0\" y=\"45.8\" width=\"149.0\" "
                             "height=\"14.2\"/><rect class=\"part1\" x=\"0.0\" y=\"17.2\""));
  EXPECT_THAT(svg, HasSubstr("<rect class=\"part2\" x=\"150.0\" y=\"31.5\""));
  EXPECT_THAT(BarPlot("zero", {{0, 0, 0}}).Take(), Not(HasSubstr("rect")));
}

TEST(Html, VeryLongTextsAreCut) {
  EXPECT_LT(EscapedForHtml(std::string(1 << 20, '<')).size(), 10'000u);
}

}  // namespace
}  // namespace basin::aggregator

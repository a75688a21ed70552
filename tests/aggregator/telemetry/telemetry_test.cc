// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The output for people and tools: log lines, metrics and events, also with hostile names.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "aggregator/telemetry/events.h"
#include "aggregator/telemetry/log.h"
#include "aggregator/telemetry/metrics.h"
#include "aggregator/telemetry/rate_limit.h"
#include "aggregator/telemetry/refusal_log.h"
#include "aggregator/telemetry/reporter.h"
#include "aggregator/telemetry/snapshot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/mutex.h"

namespace basin::aggregator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const absl::Time kNow = absl::FromUnixMillis(1795275185123);

Note NoteOf(NoteKind kind, const JobName& job, const WorkerId& worker = "",
            const std::string& lane = "", RoundNumber round = 0, const std::string& text = "") {
  Note note;
  note.kind = kind;
  note.job = job;
  note.worker = worker;
  note.lane = lane;
  note.round = round;
  note.text = text;
  return note;
}

// ---- log

TEST(LogLines, AreOneObjectWithWhatIsKnown) {
  LogLine line;
  line.level = LogLevel::kWarning;
  line.event = "worker_lost";
  line.job = "vision";
  line.worker = "w-7";
  line.reason = "was silent";
  EXPECT_EQ(
      "{\"time\":\"2026-11-21T15:33:05.123Z\",\"level\":\"warning\",\"event\":\"worker_lost\","
      "\"job\":\"vision\",\"worker\":\"w-7\",\"reason\":\"was silent\"}\n",
      FormatLine(line, kNow));
  line.lane = "default";
  line.round = 12;
  line.members = 0;
  line.addresses = {{"grpc", "127.0.0.1:29600"}};
  line.suppressed = 3;
  const auto json = nlohmann::json::parse(FormatLine(line, kNow));
  EXPECT_EQ("default", json["lane"]);
  EXPECT_EQ(12, json["round"]);
  EXPECT_EQ(0, json["members"]);
  EXPECT_EQ("127.0.0.1:29600", json["addresses"]["grpc"]);
  EXPECT_EQ(3, json["suppressed"]);
}

TEST(LogLines, OfHostileTextsAreOneLineOfAscii) {
  LogLine line;
  line.event = "worker_refused";
  line.worker = std::string("\"},{\n\r\t\x1b[31m\0\x7f", 14);
  line.reason = "\xe2\x80\xae\xff\xc0 \xe2\x80\xa8";
  const std::string text = FormatLine(line, kNow);
  EXPECT_EQ(1, std::count(text.begin(), text.end(), '\n'));
  EXPECT_TRUE(std::all_of(text.begin(), text.end() - 1, [](char c) { return c >= ' ' && c > 0; }));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(line.worker, json["worker"]);
}

TEST(LogThread, WritesInOrderWhatIsImportantEnough) {
  std::string written;
  {
    Log log(LogLevel::kInfo, [&](std::string_view lines) { written += lines; });
    for (int i = 0; i < 100; ++i) {
      LogLine line;
      line.event = "e";
      line.round = static_cast<RoundNumber>(i) + 1;
      line.level = i % 2 == 0 ? LogLevel::kInfo : LogLevel::kDebug;
      log.Write(line);
    }
  }
  std::istringstream lines(written);
  std::string line;
  std::vector<int> rounds;
  while (std::getline(lines, line)) rounds.push_back(nlohmann::json::parse(line)["round"]);
  ASSERT_THAT(rounds, SizeIs(50));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(2 * i + 1, rounds[i]);
}

TEST(LogThread, DropsAndSaysSoWhenNobodyReads) {
  Mutex mutex;
  Condition changed;
  bool blocked = false;
  bool free = false;
  std::string written;
  {
    Log log(LogLevel::kInfo, [&](std::string_view lines) {
      MutexLock lock(mutex);
      blocked = true;
      changed.NotifyAll();
      while (!free) changed.Wait(mutex);
      written += lines;
    });
    LogLine line;
    line.event = "e";
    line.reason = std::string(1000, 'x');
    log.Write(line);
    {
      MutexLock lock(mutex);
      while (!blocked) changed.Wait(mutex);
    }
    for (int i = 0; i < 10000; ++i) log.Write(line);  // Ten megabytes.
    MutexLock lock(mutex);
    free = true;
    changed.NotifyAll();
  }
  EXPECT_THAT(written, HasSubstr("log_dropped"));
  EXPECT_LT(written.size(), size_t{5} << 20);
}

TEST(LogThread, EndsWhenNobodyReads) {
  struct Reader {
    Mutex mutex;
    Condition changed;
    bool blocked ABSL_GUARDED_BY(mutex) = false;
    bool free ABSL_GUARDED_BY(mutex) = false;
    bool done ABSL_GUARDED_BY(mutex) = false;
  };
  const auto reader = std::make_shared<Reader>();
  {
    Log log(LogLevel::kInfo, [reader](std::string_view) {
      MutexLock lock(reader->mutex);
      reader->blocked = true;
      reader->changed.NotifyAll();
      while (!reader->free) reader->changed.Wait(reader->mutex);
      reader->done = true;
      reader->changed.NotifyAll();
    });
    LogLine line;
    line.event = "e";
    log.Write(line);
    MutexLock lock(reader->mutex);
    while (!reader->blocked) reader->changed.Wait(reader->mutex);
  }
  // The log has ended; the thread that it left behind still works when the reader continues.
  MutexLock lock(reader->mutex);
  EXPECT_FALSE(reader->done);
  reader->free = true;
  reader->changed.NotifyAll();
  while (!reader->done) reader->changed.Wait(reader->mutex);
}

TEST(RateLimits, LetABurstThroughAndCountTheRest) {
  RateLimit limit(3, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(0u, limit.Pass(kNow).value());
  EXPECT_FALSE(limit.Pass(kNow).has_value());
  EXPECT_FALSE(limit.Pass(kNow + absl::Milliseconds(900)).has_value());
  EXPECT_EQ(2u, limit.Pass(kNow + absl::Seconds(1)).value());
  EXPECT_EQ(0u, limit.Pass(kNow + absl::Hours(1)).value());
}

TEST(RefusalLog, HasALineAMinuteForEachAddress) {
  RefusalLog refusals;
  EXPECT_EQ(0u, refusals.Pass("10.0.0.1", kNow).value());
  for (int second = 0; second < 60; ++second) {
    EXPECT_FALSE(refusals.Pass("10.0.0.1", kNow + absl::Seconds(second)).has_value()) << second;
  }
  EXPECT_EQ(0u, refusals.Pass("10.0.0.2", kNow + absl::Seconds(59)).value());
  EXPECT_EQ(60u, refusals.Pass("10.0.0.1", kNow + absl::Minutes(1)).value());
  EXPECT_FALSE(refusals.Pass("10.0.0.1", kNow + absl::Minutes(1)).has_value());
}

TEST(RefusalLog, RemembersABoundedNumberOfAddresses) {
  RefusalLog refusals;
  EXPECT_TRUE(refusals.Pass("first", kNow).has_value());
  for (int i = 0; i < 5000; ++i) {
    EXPECT_TRUE(refusals.Pass(std::to_string(i), kNow).has_value()) << i;
  }
  EXPECT_TRUE(refusals.Pass("first", kNow).has_value());  // It was forgotten.
}

// ---- events

TEST(Events, AreNumberedAndForgottenFromTheOldest) {
  EventHistory events(3);
  EXPECT_THAT(events.After(0, 10), IsEmpty());
  for (int i = 1; i <= 5; ++i) {
    events.Add(NoteOf(NoteKind::kWorkerAdmitted, "a", "w" + std::to_string(i)), kNow);
  }
  const auto numbers = [&](uint64_t after, size_t most) {
    std::vector<uint64_t> found;
    for (const RememberedEvent& event : events.After(after, most)) found.push_back(event.sequence);
    return found;
  };
  EXPECT_THAT(numbers(0, 10), ElementsAre(3, 4, 5));
  EXPECT_THAT(numbers(3, 10), ElementsAre(4, 5));
  EXPECT_THAT(numbers(0, 2), ElementsAre(3, 4));
  EXPECT_THAT(numbers(5, 10), IsEmpty());
  EXPECT_THAT(numbers(99, 10), IsEmpty());
  EXPECT_EQ("w3", events.After(0, 1)[0].note.worker);
}

TEST(Events, NotableOnesOutliveTheRoundsOfAFastJob) {
  EventHistory events(3);
  events.Add(NoteOf(NoteKind::kWorkerLost, "a", "w"), kNow);
  for (int i = 0; i < 1000; ++i) {
    for (const NoteKind kind :
         {NoteKind::kRoundOpened, NoteKind::kRoundPrepared, NoteKind::kRoundCommitted}) {
      events.Add(NoteOf(kind, "a"), kNow);
    }
  }
  events.Add(NoteOf(NoteKind::kRoundAborted, "a"), kNow);
  const std::vector<RememberedEvent> notable = events.Notable();
  ASSERT_THAT(notable, SizeIs(2));
  EXPECT_EQ(NoteKind::kRoundAborted, notable[0].note.kind) << "newest first";
  EXPECT_EQ(1u, notable[1].sequence);
  for (int i = 0; i < 1000; ++i) events.Add(NoteOf(NoteKind::kWorkerLate, "a"), kNow);
  EXPECT_THAT(events.Notable(), SizeIs(kNotableEvents));
}

// The numbers of the events of a kind, or of a job, that are remembered.
TEST(Events, TheMemoryOfThoseThatAreForgottenIsNotCounted) {
  EventHistory events(3);
  for (int i = 0; i < 3; ++i) events.Add(NoteOf(NoteKind::kRoundOpened, "a"), kNow);
  const uint64_t full = events.bytes();
  EXPECT_GT(full, 3 * sizeof(RememberedEvent));
  for (int i = 0; i < 10; ++i) events.Add(NoteOf(NoteKind::kRoundOpened, "a"), kNow);
  EXPECT_EQ(full, events.bytes());
  Note longer = NoteOf(NoteKind::kRoundOpened, "a");
  longer.text.append(1000, 'x');
  events.Add(longer, kNow);
  EXPECT_EQ(full + 1000, events.bytes());
}

std::vector<uint64_t> Remembered(const EventHistory& events, const std::string& job,
                                 NoteKind kind) {
  std::vector<uint64_t> found;
  for (const RememberedEvent& event : events.After(0, 100000)) {
    if (event.note.job == job && event.note.kind == kind) found.push_back(event.sequence);
  }
  return found;
}

TEST(Events, AFastJobDisplacesNeitherItsOwnWarningsNorTheEventsOfAnother) {
  EventHistory events(1000);
  events.Add(NoteOf(NoteKind::kLineageConflict, "fast", "w"), kNow);
  events.Add(NoteOf(NoteKind::kRoundAborted, "fast"), kNow);
  events.Add(NoteOf(NoteKind::kGeneration, "fast"), kNow);
  events.Add(NoteOf(NoteKind::kRoundCommitted, "slow"), kNow);
  events.Add(NoteOf(NoteKind::kWorkerRefused, "slow", "w"), kNow);
  for (int i = 0; i < 10000; ++i) {
    for (const NoteKind kind :
         {NoteKind::kRoundOpened, NoteKind::kRoundPrepared, NoteKind::kRoundCommitted}) {
      events.Add(NoteOf(kind, "fast"), kNow);
    }
  }
  EXPECT_THAT(Remembered(events, "fast", NoteKind::kLineageConflict), ElementsAre(1));
  EXPECT_THAT(Remembered(events, "fast", NoteKind::kRoundAborted), ElementsAre(2));
  EXPECT_THAT(Remembered(events, "fast", NoteKind::kGeneration), ElementsAre(3));
  EXPECT_THAT(Remembered(events, "slow", NoteKind::kRoundCommitted), ElementsAre(4));
  EXPECT_THAT(Remembered(events, "slow", NoteKind::kWorkerRefused), ElementsAre(5));
  EXPECT_THAT(events.After(0, 100000), SizeIs(5 + kRoutineEvents));
  EXPECT_EQ(30005u, events.Last("fast"));
  EXPECT_EQ(5u, events.Last("slow"));
}

TEST(Events, AJobThatWarnsAllTheTimeLeavesTheErrorsAndTheWarningsOfOthers) {
  EventHistory events(100);
  events.Add(NoteOf(NoteKind::kHalted, "loud"), kNow);
  for (int i = 0; i < 10; ++i) events.Add(NoteOf(NoteKind::kRoundAborted, "quiet"), kNow);
  for (int i = 0; i < 10000; ++i) events.Add(NoteOf(NoteKind::kRoundAborted, "loud"), kNow);
  EXPECT_THAT(Remembered(events, "loud", NoteKind::kHalted), SizeIs(1));
  EXPECT_THAT(Remembered(events, "quiet", NoteKind::kRoundAborted), SizeIs(10));
  EXPECT_THAT(events.After(0, 100000), SizeIs(100)) << "the bound holds for all together";
}

TEST(Events, NamesThatAPeerMakesUpShareOneGroup) {
  EventHistory events(100);
  for (int i = 0; i < 10; ++i) events.Add(NoteOf(NoteKind::kWorkerLost, "known", "w"), kNow);
  for (int i = 0; i < 10000; ++i) {
    events.Add(NoteOf(NoteKind::kJobRefused, "made-up-" + std::to_string(i)), kNow);
  }
  EXPECT_THAT(Remembered(events, "known", NoteKind::kWorkerLost), SizeIs(10));
  EXPECT_THAT(events.After(0, 100000), SizeIs(100));
}

TEST(Events, ListenersHearOfEachUntilTheyLeave) {
  EventHistory events(3);
  int heard = 0;
  const uint64_t subscription = events.Subscribe([&] { ++heard; });
  events.Add(NoteOf(NoteKind::kPaused, "a"), kNow);
  events.Add(NoteOf(NoteKind::kResumed, "a"), kNow);
  events.Unsubscribe(subscription);
  events.Add(NoteOf(NoteKind::kPaused, "a"), kNow);
  EXPECT_EQ(2, heard);
}

// ---- metrics

// A strict reader of the text format: every line is a comment of a known form or a sample of a
// family that was announced, and no series comes twice.
std::map<std::string, double> Parse(const std::string& text) {
  static const std::regex comment("# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)");
  static const std::regex sample(
      "([a-zA-Z_:][a-zA-Z0-9_:]*)"
      "(\\{([a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\\n]|\\\\[\\\\\"n])*\",?)*\\})? (\\S+)");
  std::map<std::string, double> samples;
  std::set<std::string> families;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::smatch match;
    if (std::regex_match(line, match, comment)) {
      if (match[1] == "TYPE") {
        EXPECT_TRUE(families.insert(match[2]).second) << line;
      }
    } else if (std::regex_match(line, match, sample)) {
      const std::string name =
          std::regex_replace(std::string(match[1]), std::regex("_(bucket|sum|count)$"), "");
      EXPECT_TRUE(families.count(name) == 1 || families.count(match[1]) == 1) << line;
      const std::string series = std::string(match[1]) + std::string(match[2]);
      EXPECT_TRUE(samples.emplace(series, std::stod(match[5])).second) << line;
    } else {
      ADD_FAILURE() << "not of the format: " << line;
    }
  }
  return samples;
}

TEST(Metrics, OfAnIdleAggregatorAreOfTheFormat) {
  const Metrics metrics("1.2.3");
  const std::map<std::string, double> samples =
      Parse(metrics.Text(Snapshot(), absl::Milliseconds(250)));
  EXPECT_EQ(1, samples.at("basin_build_info{version=\"1.2.3\"}"));
  EXPECT_EQ(0.25, samples.at("basin_loop_delay_seconds"));
  EXPECT_EQ(0, samples.at("basin_state_file_failures_total"));
  for (const char* event :
       {"job_refused", "shard_lost", "shard_drained", "shard_too_small", "shard_unreachable"}) {
    EXPECT_EQ(0, samples.at(absl::StrCat("basin_events_total{event=\"", event, "\"}"))) << event;
  }
  EXPECT_GT(samples.at("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(samples.at("process_start_time_seconds"), 1.5e9);
  EXPECT_GE(samples.at("process_open_fds"), 3);
  EXPECT_EQ(1u, samples.count("process_cpu_seconds_total"));
}

TEST(Metrics, MemoryIsShownByKind) {
  const Metrics metrics("1");
  Snapshot snapshot;
  snapshot.reserved_bytes = 300;
  snapshot.memory = {{"received", 100}, {"idle", 20}};
  const std::map<std::string, double> samples = Parse(metrics.Text(snapshot, {}));
  EXPECT_EQ(100, samples.at("basin_buffer_bytes{kind=\"received\"}"));
  EXPECT_EQ(20, samples.at("basin_buffer_bytes{kind=\"idle\"}"));
  EXPECT_EQ(300, samples.at("basin_reserved_bytes"));
}

TEST(Metrics, OfAHangingLoopAreWithoutGauges) {
  const Metrics metrics("1");
  const std::map<std::string, double> samples =
      Parse(metrics.Text(std::nullopt, absl::Seconds(30), {{"basin_x_total", "Of others.", 3}}));
  EXPECT_EQ(30, samples.at("basin_loop_delay_seconds"));
  EXPECT_EQ(3, samples.at("basin_x_total"));
  EXPECT_EQ(0u, samples.count("basin_sessions"));
}

TEST(Metrics, CountRoundsAndTheirDuration) {
  Metrics metrics("1");
  metrics.Count(NoteOf(NoteKind::kJobAdmitted, "a"), kNow);
  metrics.Count(NoteOf(NoteKind::kRoundOpened, "a", "w0", "default", 1), kNow);
  metrics.Count(NoteOf(NoteKind::kRoundCommitted, "a", "", "default", 1),
                kNow + absl::Milliseconds(300));
  Note prepared = NoteOf(NoteKind::kRoundPrepared, "a", "", "default", 1);
  prepared.waited_for = "w1";
  prepared.waited = absl::Milliseconds(250);
  metrics.Count(prepared, kNow);
  prepared.waited_for = "";  // No worker was last.
  metrics.Count(prepared, kNow);
  metrics.Count(NoteOf(NoteKind::kRoundOpened, "a", "w0", "default", 2), kNow);
  metrics.Count(NoteOf(NoteKind::kAttemptRestarted, "a", "", "default", 2), kNow);
  metrics.Count(NoteOf(NoteKind::kWorkerLost, "a", "w1"), kNow);
  metrics.Count(NoteOf(NoteKind::kRoundAborted, "a", "", "default", 2), kNow + absl::Seconds(1));
  const std::map<std::string, double> samples = Parse(metrics.Text({}, absl::ZeroDuration()));
  EXPECT_EQ(1, samples.at("basin_rounds_total{outcome=\"committed\",training_job=\"a\"}"));
  EXPECT_EQ(1, samples.at("basin_rounds_total{outcome=\"aborted\",training_job=\"a\"}"));
  EXPECT_EQ(1, samples.at("basin_attempts_restarted_total{training_job=\"a\"}"));
  EXPECT_EQ(1, samples.at("basin_evictions_total{reason=\"lost\",training_job=\"a\"}"));
  EXPECT_EQ(2, samples.at("basin_round_duration_seconds_count{training_job=\"a\"}"));
  EXPECT_NEAR(1.3, samples.at("basin_round_duration_seconds_sum{training_job=\"a\"}"), 1e-9);
  EXPECT_EQ(2, samples.at("basin_events_total{event=\"round_opened\"}"));
  EXPECT_EQ(0, samples.at("basin_events_total{event=\"lineage_conflict\"}"));
  EXPECT_EQ(1, samples.at("basin_straggler_wait_seconds_count{training_job=\"a\"}"));
  EXPECT_EQ(0.25, samples.at("basin_straggler_wait_seconds_sum{training_job=\"a\"}"));
}

TEST(Metrics, CountContributionsFramesAndCreditStalls) {
  Metrics metrics("1");
  metrics.Count(NoteOf(NoteKind::kJobAdmitted, "a"), kNow);
  Note committed = NoteOf(NoteKind::kRoundCommitted, "a", "", "default", 1);
  committed.contributions = 3;
  committed.credit_stalls = 5;
  metrics.Count(committed, kNow);
  metrics.Count(committed, kNow);
  metrics.Count(NoteOf(NoteKind::kContributionCarried, "a", "w"), kNow);
  metrics.Count(NoteOf(NoteKind::kContributionDeferred, "a", "w"), kNow);
  metrics.Count(NoteOf(NoteKind::kFrameDuplicate, "a", "w"), kNow);
  metrics.Count(NoteOf(NoteKind::kFrameStale, "a", "w"), kNow);
  metrics.Count(NoteOf(NoteKind::kFrameStale, "a", "w"), kNow);
  metrics.Count(NoteOf(NoteKind::kFrameStale, "other", "w"), kNow);
  const std::map<std::string, double> samples = Parse(metrics.Text({}, absl::ZeroDuration()));
  EXPECT_EQ(6, samples.at("basin_contributions_total{result=\"accepted\",training_job=\"a\"}"));
  EXPECT_EQ(1, samples.at("basin_contributions_total{result=\"carried\",training_job=\"a\"}"));
  EXPECT_EQ(1, samples.at("basin_contributions_total{result=\"deferred\",training_job=\"a\"}"));
  EXPECT_EQ(0, samples.at("basin_contributions_total{result=\"withdrawn\",training_job=\"a\"}"));
  EXPECT_EQ(LogLevel::kDebug, LevelOf(NoteKind::kContributionCarried)) << "it is in each round";
  EXPECT_EQ(10, samples.at("basin_credit_stalls_total{training_job=\"a\"}"));
  const auto frames = [&](const std::string& result) {
    return samples.at("basin_contribution_frames_total{result=\"" + result +
                      "\",training_job=\"a\"}");
  };
  EXPECT_EQ(1, frames("duplicate"));
  EXPECT_EQ(2, frames("stale"));
  EXPECT_EQ(0, frames("refused"));
}

TEST(Metrics, OfAJobGoWhenItEnds) {
  Metrics metrics("1");
  const auto count = [&] {
    const std::map<std::string, double> samples = Parse(metrics.Text({}, absl::ZeroDuration()));
    return std::count_if(samples.begin(), samples.end(), [](const auto& sample) {
      return sample.first.find("training_job=\"a\"") != std::string::npos;
    });
  };
  for (int i = 0; i < 3; ++i) {
    metrics.Count(NoteOf(NoteKind::kJobAdmitted, "a"), kNow);
    EXPECT_GT(count(), 5);
    metrics.Count(NoteOf(NoteKind::kJobEnded, "a"), kNow);
    EXPECT_EQ(0, count());
  }
}

TEST(Metrics, NamesThatPeersMakeUpAddNoSeries) {
  Metrics metrics("1");
  for (int i = 0; i < 1000; ++i) {
    const std::string made_up = "made-up-" + std::to_string(i);
    metrics.Count(NoteOf(NoteKind::kJobRefused, made_up, made_up), kNow);
    metrics.Count(NoteOf(NoteKind::kWorkerRefused, made_up, made_up), kNow);
  }
  const std::string text = metrics.Text({}, absl::ZeroDuration());
  EXPECT_THAT(text, Not(HasSubstr("made-up")));
  EXPECT_EQ(1000, Parse(text).at("basin_events_total{event=\"job_refused\"}"));
}

TEST(Metrics, OfASnapshotShowJobsWorkersAndLanes) {
  Snapshot snapshot;
  JobSnapshot job;
  job.job = "a";
  job.state = "running";
  job.generation = 4;
  job.workers = {{"member", 2}, {"spare", 1}};
  job.last_message = {{"w0", absl::Milliseconds(1500)}};
  LaneSnapshot lane;
  lane.lane = "evil\"} 1\n\\lane";
  lane.round = 7;
  lane.open = true;
  lane.last = ResultSnapshot{};
  lane.last->spec.op = ReduceOp::kWeightedAverage;
  lane.last->spec.weight_by = WeightBy::kSamples;
  lane.last->spec.prescale = 0.5;
  lane.last->spec.loss_scale = 1024;
  lane.last->generation = {1, 3};
  lane.last->world_size = 4;
  lane.last->contract_version = 1;
  lane.last->contributors = 2;
  lane.last->divisor = 48;
  lane.last->sum_of_weights = 48;
  lane.last->effective_batch = {48, std::nullopt, 6};
  lane.last->norm = 2.5;
  lane.last->tensor_norms = {{"w", 2}, {"b", 1.5}};
  lane.last->nonfinite = NonFinite{"w1", 1, 17};
  lane.last->nonfinite_tensor = "b";
  job.lanes = {lane};
  job.goodput.ratio = 0.75;
  job.goodput.uses = {{TimeUse::kWorked, absl::Seconds(6), absl::ZeroDuration()},
                      {TimeUse::kCatchingUp, absl::Seconds(2), absl::Seconds(4)},
                      {TimeUse::kDiscarded, absl::Seconds(1), absl::ZeroDuration()},
                      {TimeUse::kPending, absl::ZeroDuration(), absl::Seconds(3)}};
  job.members = {{"w0", {4, absl::Seconds(3)}, absl::Seconds(9)}};
  snapshot.jobs = {job};
  snapshot.counters.corrupt_frames = 3;
  snapshot.draining = true;
  const Metrics metrics("1");
  const std::map<std::string, double> samples = Parse(metrics.Text(snapshot, {}));
  EXPECT_EQ(1, samples.at("basin_job_state{training_job=\"a\",state=\"running\"}"));
  EXPECT_EQ(2, samples.at("basin_members{training_job=\"a\",state=\"member\"}"));
  EXPECT_EQ(1.5, samples.at("basin_worker_last_seen_seconds{training_job=\"a\",worker=\"w0\"}"));
  EXPECT_EQ(0.75, samples.at("basin_goodput_ratio{training_job=\"a\"}"));
  EXPECT_EQ(6, samples.at("basin_worked_seconds_total{training_job=\"a\"}"));
  EXPECT_EQ(2, samples.at("basin_lost_seconds_total{training_job=\"a\",reason=\"catching_up\"}"));
  EXPECT_EQ(0u, samples.count("basin_lost_seconds_total{training_job=\"a\",reason=\"worked\"}"));
  EXPECT_EQ(0u, samples.count("basin_lost_seconds_total{training_job=\"a\",reason=\"pending\"}"));
  EXPECT_EQ(4, samples.at("basin_open_seconds{training_job=\"a\",reason=\"catching_up\"}"));
  EXPECT_EQ(3, samples.at("basin_open_seconds{training_job=\"a\",reason=\"pending\"}"));
  EXPECT_EQ(0u, samples.count("basin_open_seconds{training_job=\"a\",reason=\"worked\"}"));
  EXPECT_EQ(0u, samples.count("basin_open_seconds{training_job=\"a\",reason=\"discarded\"}"));
  const std::string of_w0 = "{training_job=\"a\",worker=\"w0\"}";
  EXPECT_EQ(9, samples.at("basin_worker_waited_seconds_total" + of_w0));
  EXPECT_EQ(4, samples.at("basin_worker_lateness_seconds_count" + of_w0));
  EXPECT_EQ(3, samples.at("basin_worker_lateness_seconds_sum" + of_w0));
  EXPECT_EQ(7, samples.at("basin_round{training_job=\"a\",lane=\"evil\\\"} 1\\n\\\\lane\"}"));
  const std::string of_lane = "{training_job=\"a\",lane=\"evil\\\"} 1\\n\\\\lane\"}";
  EXPECT_EQ(2.5, samples.at("basin_gradient_norm" + of_lane));
  EXPECT_EQ(2, samples.at("basin_contributors" + of_lane));
  EXPECT_EQ(48, samples.at("basin_divisor" + of_lane));
  EXPECT_EQ(48, samples.at("basin_sum_of_weights" + of_lane));
  EXPECT_EQ(4, samples.at("basin_world_size" + of_lane));
  EXPECT_EQ(3, samples.at("basin_result_generation" + of_lane));
  EXPECT_EQ(0.5, samples.at("basin_prescale" + of_lane));
  EXPECT_EQ(1, samples.at("basin_postscale" + of_lane));
  EXPECT_EQ(1, samples.at("basin_predivide" + of_lane));
  EXPECT_EQ(1024, samples.at("basin_loss_scale" + of_lane));
  EXPECT_EQ(0, samples.at("basin_result_overflow" + of_lane));
  const auto with = [&](const std::string& more) {
    return of_lane.substr(0, of_lane.size() - 1) + "," + more + "}";
  };
  EXPECT_EQ(1, samples.at("basin_result_info" +
                          with("op=\"WEIGHTED_AVERAGE\",contributes=\"MEAN\",weight_by=\"samples\","
                               "denominator=\"ALL\",contract_version=\"1\"")));
  EXPECT_EQ(1.5, samples.at("basin_tensor_gradient_norm" + with("tensor=\"b\"")));
  EXPECT_EQ(17, samples.at("basin_nonfinite_element" + with("worker=\"w1\",tensor=\"b\"")));
  EXPECT_EQ(48, samples.at("basin_effective_batch_samples" + of_lane));
  EXPECT_EQ(6, samples.at("basin_effective_batch_micro_batches" + of_lane));
  EXPECT_EQ(0u, samples.count("basin_effective_batch_tokens" + of_lane)) << "unknown is not zero";
  EXPECT_EQ(3, samples.at("basin_checksum_failures_total"));
  EXPECT_EQ(1, samples.at("basin_draining"));
}

TEST(Norms, AreOfFloatingPointTensorsThatHaveAResult) {
  Layout layout;
  layout.Append({"f", DType::kF32, {2}});
  layout.Append({"i", DType::kI64, {2}});
  layout.Append({"skipped", DType::kF16, {2}});
  RoundValue value;
  value.outcome = Outcome::kCommitted;
  value.layout_version = 3;
  value.divisor = 1;
  value.tensor_divisors = {{2, 0}};
  value.facts.squared_norm = 9;
  value.facts.tensor_squared_norms = {9, 0, 0};
  EXPECT_THAT(NormsOf(layout, value).tensors, ElementsAre(3, std::nullopt, std::nullopt));
  EXPECT_EQ(3, NormsOf(layout, value).all);
  value.tensor_divisors = {{0, 0}, {2, 0}};
  EXPECT_EQ(std::nullopt, NormsOf(layout, value).all) << "of integers alone";
  value.outcome = Outcome::kAborted;
  EXPECT_EQ(std::nullopt, NormsOf(layout, value).all);
}

// ---- together

TEST(ReporterTest, PassesNotesOnAndKeepsARepeatedOneFromDrowningTheRest) {
  std::string written;
  Metrics metrics("1");
  EventHistory events(10);
  {
    Log log(LogLevel::kInfo, [&](std::string_view lines) { written += lines; });
    Reporter reporter(log, metrics, events);
    for (int i = 0; i < 10000; ++i) {
      reporter.OnNote(NoteOf(NoteKind::kWorkerRefused, "a", "w0"), kNow);
    }
    reporter.OnNote(NoteOf(NoteKind::kHalted, "a"), kNow);
    reporter.OnNote(NoteOf(NoteKind::kRoundCommitted, "a"), kNow);  // debug
    reporter.OnNote(NoteOf(NoteKind::kFrameRefused, "a", "w0"), kNow);
    reporter.OnNote(NoteOf(NoteKind::kWorkerRefused, "a", "w0"), kNow + absl::Seconds(1));
  }
  EXPECT_LT(std::count(written.begin(), written.end(), '\n'), 600);
  EXPECT_THAT(written, HasSubstr("\"event\":\"halted\""));
  EXPECT_THAT(written, Not(HasSubstr("round_committed")));
  EXPECT_THAT(written, HasSubstr("\"suppressed\":9500"));
  EXPECT_EQ(10003u, events.After(0, 10).back().sequence);  // Frames are not remembered.
  EXPECT_EQ(10001, Parse(metrics.Text({}, {})).at("basin_events_total{event=\"worker_refused\"}"));
}

TEST(ReporterTest, AWorkerThatWithdrawsFromEachRoundSaysWhyOnceInTenSeconds) {
  std::string written;
  Metrics metrics("1");
  EventHistory events(100);
  {
    Log log(LogLevel::kInfo, [&](std::string_view lines) { written += lines; });
    Reporter reporter(log, metrics, events);
    const auto withdraws = [&](const char* worker, const char* why, absl::Duration at) {
      Note note = NoteOf(NoteKind::kContributionWithdrawn, "a", worker);
      note.text = why;
      reporter.OnNote(note, kNow + at);
    };
    for (int i = 0; i < 25; ++i) withdraws("w0", "it loads the state", absl::Seconds(i));
    withdraws("w1", "it loads the state", absl::Seconds(25));
    withdraws("w0", "its backward failed", absl::Seconds(25));
  }
  EXPECT_EQ(5, std::count(written.begin(), written.end(), '\n'));
  EXPECT_EQ(5u, events.After(0, 100).size());
  EXPECT_EQ(27,
            Parse(metrics.Text({}, {})).at("basin_events_total{event=\"contribution_withdrawn\"}"));
}

}  // namespace
}  // namespace basin::aggregator

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The admin service over gRPC, in front of an engine with workers that the test drives.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "aggregator/admin/admin_server.h"
#include "aggregator/admin/metadata.h"
#include "aggregator/admin/shards_view.h"
#include "aggregator/ctl/show.h"
#include "basin/v1/admin.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proto/status/status.h"
#include "protocol/limits/limits.h"
#include "runtime/grpc/credentials.h"
#include "runtime/mutex.h"
#include "tests/aggregator/engine/in_process.h"
#include "tests/aggregator/transport/raw_http2.h"
#include "tests/aggregator/transport/raw_stream.h"
#include "tests/client/transport/grpc/tcp_relay.h"
#include "tests/proto/admin_requests.h"
#include "tests/runtime/await.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Term kTerm = 7;
constexpr size_t kElements = 2 * kChunkFloats;

// Remembers the events.
class Recorder : public NoteSink {
 public:
  explicit Recorder(EventHistory& events) : events_(events) {}
  void OnNote(const Note& note, absl::Time now) override { events_.Add(note, now); }

 private:
  EventHistory& events_;
};

EngineOptions OptionsWithTerm(bool state_file, uint32_t job_rounds) {
  EngineOptions options;
  options.core.term = kTerm;
  options.core.state_file = state_file;
  options.core.max_job_rounds = job_rounds;
  return options;
}

// Writes in memory, and waits at what an operator has set until it is let go on.
class HeldStateFile : public StateFile {
 public:
  absl::Status Save(const SaveState& /*state*/) override { return absl::OkStatus(); }
  absl::Status Save(const SaveSettings& settings) override {
    MutexLock lock(mutex);
    written = settings.settings;
    changed.NotifyAll();
    while (held) changed.Wait(mutex);
    return result;
  }

  Mutex mutex;
  Condition changed;
  bool held ABSL_GUARDED_BY(mutex) = false;
  absl::Status result ABSL_GUARDED_BY(mutex);
  std::optional<ChangedSettings> written ABSL_GUARDED_BY(mutex);
};

// An engine without sockets, and the admin service with one.
class Aggregator : public EngineNetwork {
 public:
  explicit Aggregator(Gatekeeper* gatekeeper = nullptr, StateFile* state_file = nullptr,
                      uint32_t job_rounds = 0, absl::Duration handshake_timeout = absl::Minutes(1),
                      absl::Duration keepalive = absl::Minutes(1))
      : EngineNetwork(engine),
        recorder(events),
        engine(OptionsWithTerm(state_file != nullptr, job_rounds), clock, *reducer, recorder,
               state_file) {
    engine.Start(transport);
    AdminOptions options;
    options.address = "127.0.0.1:0";
    options.version = "1.2.3";
    options.gatekeeper = gatekeeper;
    options.end = [this] { ended = true; };
    options.memory_use = [](const LoopMemory& loop) -> std::vector<MemoryUse> {
      return {{"description", loop.description}, {"idle", uint64_t{4} << 20}};
    };
    options.handshake_timeout = handshake_timeout;
    options.keepalive = keepalive;
    options.report = [this](const std::string& address, const std::string& kind,
                            const std::string& what) {
      MutexLock lock(mutex);
      reports.push_back({address, kind, what});
      reported.NotifyAll();
    };
    options.on_change = [this](const std::string& job, const std::string& what) {
      MutexLock lock(mutex);
      changes.push_back(absl::StrCat(job, ": ", what));
    };
    auto started = AdminServer::Start(std::move(options), engine, events);
    EXPECT_TRUE(started.ok()) << started.status();
    admin = *std::move(started);
    stub = v1::Admin::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(admin->port()),
                                                  grpc::InsecureChannelCredentials()));
  }
  ~Aggregator() override {
    admin.reset();
    engine.Stop();
  }

  // A valid request without its object.
  template <typename Request>
  static Request About(const std::string& job = kJob) {
    Request request = basin::testing::GoodRequest<Request>();
    if constexpr (!std::is_same_v<Request, v1::GetStatusRequest> &&
                  !std::is_same_v<Request, v1::ListJobsRequest> &&
                  !std::is_same_v<Request, v1::ListShardsRequest> &&
                  !std::is_same_v<Request, v1::GetLimitsRequest> &&
                  !std::is_same_v<Request, v1::DrainServiceRequest> &&
                  !std::is_same_v<Request, v1::StepDownRequest>) {
      request.set_job(job);
    }
    return request;
  }
  template <typename Response, typename Method, typename Request>
  Response Call(Method method, const Request& request) {
    Response response;
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata(kAuthorizationMetadata, kBearer + token);
    status = FromGrpc((stub.get()->*method)(&context, request, &response));
    return response;
  }

  struct Report {
    std::string address;
    std::string kind;
    std::string what;
  };
  // The report with this number, from 0.
  Report AwaitReport(size_t number) {
    MutexLock lock(mutex);
    while (reports.size() <= number) reported.Wait(mutex);
    return reports[number];
  }
  void AwaitReportOf(const std::string& what) {
    for (size_t i = 0; AwaitReport(i).what.find(what) == std::string::npos; ++i) {
    }
  }
  std::vector<std::string> Changes() {
    MutexLock lock(mutex);
    return changes;
  }

  Mutex mutex;
  Condition reported;
  std::vector<Report> reports ABSL_GUARDED_BY(mutex);
  std::vector<std::string> changes ABSL_GUARDED_BY(mutex);
  ManualClock clock;
  EventHistory events{100};
  Recorder recorder;
  std::unique_ptr<kernels::Reducer> reducer = kernels::MakeCpuReducer();
  Engine engine;
  std::unique_ptr<AdminServer> admin;
  std::unique_ptr<v1::Admin::Stub> stub;
  std::string token;    // The caller's; empty: none.
  absl::Status status;  // Metadata of the last call.
  bool ended = false;
};

class AdminTest : public ::testing::Test {
 protected:
  void CommitOneRound() {
    for (RigWorker* worker : {&a_, &b_}) {
      worker->Begin();
      worker->Push(0, GradientOf(0, kElements));
      worker->Commit();
    }
    Finish({&a_, &b_});
  }

  const Model model_ = AverageOf({F32("weight", kElements)}, 2);
  Aggregator aggregator_;
  RigWorker a_{aggregator_, "a", model_};
  RigWorker b_{aggregator_, "b", model_};
};

TEST_F(AdminTest, StatusSaysWhatRunsAndHowMuch) {
  Join({&a_, &b_});
  const auto status = aggregator_.Call<v1::ServiceStatus>(
      &v1::Admin::Stub::GetStatus, Aggregator::About<v1::GetStatusRequest>());
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  EXPECT_EQ("1.2.3", status.version());
  EXPECT_EQ(kTerm, status.term());
  EXPECT_TRUE(status.serving());
  EXPECT_EQ(1u, status.jobs());
  EXPECT_EQ(2u, status.workers());
  EXPECT_GT(status.buffer_bytes(), 0u);
  EXPECT_THAT(Show(status), HasSubstr("serving"));
}

TEST_F(AdminTest, JobsShowTheirStateAndCounts) {
  Join({&a_, &b_});
  CommitOneRound();
  const auto jobs = aggregator_.Call<v1::ListJobsResponse>(
      &v1::Admin::Stub::ListJobs, Aggregator::About<v1::ListJobsRequest>());
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  ASSERT_EQ(1, jobs.jobs_size());
  EXPECT_EQ(kJob, jobs.jobs(0).job());
  EXPECT_EQ(v1::JOB_STATE_RUNNING, jobs.jobs(0).state());
  EXPECT_EQ(2u, jobs.jobs(0).members());
  EXPECT_EQ(2u, jobs.jobs(0).settings().max_workers());
  EXPECT_EQ(1u, jobs.jobs(0).committed_rounds());
  EXPECT_THAT(Show(jobs), HasSubstr("running"));
}

TEST_F(AdminTest, WithoutShardsTheAggregatorHasEverything) {
  Join({&a_, &b_});
  CommitOneRound();
  const auto shards = aggregator_.Call<v1::ListShardsResponse>(
      &v1::Admin::Stub::ListShards, Aggregator::About<v1::ListShardsRequest>());
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  ASSERT_EQ(1, shards.shards_size());
  const v1::ShardStatus& own = shards.shards(0);
  EXPECT_GT(own.up_ns(), 0u);
  EXPECT_GT(own.contribution_bytes(), 0u);
  EXPECT_GT(own.result_bytes(), 0u);
  EXPECT_GT(own.reductions(), 0u);
  EXPECT_FALSE(own.slow());
  ASSERT_EQ(1, own.jobs_size());
  EXPECT_EQ(kJob, own.jobs(0).job());
  EXPECT_EQ(kElements * sizeof(float), own.jobs(0).bytes());
  EXPECT_EQ(own.jobs(0).job_bytes(), own.jobs(0).bytes());
  EXPECT_THAT(Show(shards), AllOf(HasSubstr("aggregator"), HasSubstr("100.0%")));
}

TEST_F(AdminTest, AShardIsShownWithItsPartAndWhatItReported) {
  const ShardId shard = aggregator_.engine.OpenShard({1, 1, "s-1", "10.1.2.3:29600", "basind"});
  aggregator_.engine.OnShardEvents(shard, {ShardUse{100, 200, 3, 4096, 1024}}, 1);
  Join({&a_, &b_});
  CommitOneRound();
  const auto shards = aggregator_.Call<v1::ListShardsResponse>(
      &v1::Admin::Stub::ListShards, Aggregator::About<v1::ListShardsRequest>());
  ASSERT_EQ(2, shards.shards_size());
  const v1::ShardStatus& other = shards.shards(1);
  EXPECT_EQ(shard, other.shard());
  EXPECT_EQ("s-1", other.name());
  EXPECT_EQ("10.1.2.3:29600", other.endpoint());
  EXPECT_EQ(100u, other.contribution_bytes());
  EXPECT_EQ(200u, other.result_bytes());
  EXPECT_EQ(3u, other.reductions());
  EXPECT_EQ(4096u, other.parked_bytes());
  EXPECT_EQ(1024u, other.held_result_bytes());
  ASSERT_EQ(1, other.jobs_size());
  EXPECT_EQ(kJob, other.jobs(0).job());
  EXPECT_EQ(0u, other.jobs(0).bytes()) << "so small a lane stays on the aggregator";
  EXPECT_THAT(Show(shards), AllOf(HasSubstr("s-1"), HasSubstr("10.1.2.3:29600"),
                                  HasSubstr("5.0KiB"), HasSubstr("0.0%")));
}

TEST(ShardsViewTest, AShardIsSlowAgainstTheOthers) {
  const auto slow = [](std::vector<uint64_t> milliseconds) {
    v1::ListShardsResponse shards;
    for (const uint64_t reduce_ms : milliseconds) {
      v1::ShardStatus& shard = *shards.add_shards();
      shard.set_shard(static_cast<uint32_t>(shards.shards_size() - 1));
      shard.set_reduce_ns(reduce_ms * 1'000'000);
    }
    MarkSlow(shards);
    std::string marks;
    for (const v1::ShardStatus& shard : shards.shards()) marks += shard.slow() ? 'x' : '-';
    return marks;
  };
  EXPECT_EQ("---x", slow({10, 11, 12, 40}));
  EXPECT_EQ("x---", slow({24, 11, 12, 10}));
  EXPECT_EQ("---", slow({10, 11, 19})) << "less than twice as long";
  EXPECT_EQ("---", slow({1, 1, 5})) << "a few milliseconds are noise";
  EXPECT_EQ("-x", slow({10, 100}));
  EXPECT_EQ("-", slow({100})) << "alone";
  EXPECT_EQ("--", slow({0, 100})) << "the other has reduced nothing yet";
}

TEST(ShardsViewTest, TheTableNamesWhoCannotReachAShardAndWhyAJobDoesWithoutIt) {
  v1::ListShardsResponse shards;
  for (const char* name : {"", "s-1", "s-2"}) {
    v1::ShardStatus& shard = *shards.add_shards();
    shard.set_shard(static_cast<uint32_t>(shards.shards_size() - 1));
    shard.set_name(name);
    shard.add_jobs()->set_job("vision");
  }
  shards.mutable_shards(1)->mutable_jobs(0)->set_left_out("a worker could not reach it");
  shards.mutable_shards(1)->set_draining(true);
  v1::ShardOutOfReach& by = *shards.mutable_shards(2)->mutable_jobs(0)->add_out_of_reach();
  by.set_worker("w-7");
  by.set_since_ns(1'500'000'000);
  by.set_why("it cannot reach shard s-2 at h:1: connection refused");
  EXPECT_THAT(Show(shards),
              AllOf(ContainsRegex("s-1 .* draining, left out of 1 job\n"),
                    ContainsRegex("s-2 .* out of reach of 1 worker\n"),
                    HasSubstr("left out: a worker could not reach it\n"),
                    HasSubstr("worker w-7 says since 1.5s that it cannot reach shard s-2 at h:1")));
}

TEST_F(AdminTest, MembersComeByRank) {
  Join({&a_, &b_});
  const auto members = aggregator_.Call<v1::ListMembersResponse>(
      &v1::Admin::Stub::ListMembers, Aggregator::About<v1::ListMembersRequest>());
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  ASSERT_EQ(2, members.members_size());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(v1::ROLE_MEMBER, members.members(i).role());
    EXPECT_EQ(static_cast<uint32_t>(i), members.members(i).rank());
    EXPECT_TRUE(members.members(i).connected());
  }
  EXPECT_EQ(kTerm, members.generation().term());
  EXPECT_THAT(Show(members), AllOf(HasSubstr("WORKER"), HasSubstr("member")));
}

TEST_F(AdminTest, WorkersOfAJobThatRecoversAreShown) {
  Hello hello;
  hello.job = kJob;
  hello.run = "run";
  hello.worker = "a";
  hello.nonce = 1;
  hello.settings = model_.settings;
  hello.incarnation = {1, 1};
  hello.membership = {{1, 1}, {{"a", "b"}}};
  aggregator_.OnMessage(aggregator_.OpenSession(), hello);

  const auto jobs = aggregator_.Call<v1::ListJobsResponse>(
      &v1::Admin::Stub::ListJobs, Aggregator::About<v1::ListJobsRequest>());
  ASSERT_EQ(1, jobs.jobs_size());
  EXPECT_EQ(v1::JOB_STATE_RECOVERING, jobs.jobs(0).state());
  EXPECT_EQ(1u, jobs.jobs(0).joiners());
  const auto members = aggregator_.Call<v1::ListMembersResponse>(
      &v1::Admin::Stub::ListMembers, Aggregator::About<v1::ListMembersRequest>());
  ASSERT_EQ(1, members.members_size());
  EXPECT_EQ("a", members.members(0).worker());
  EXPECT_TRUE(members.members(0).connected());
  EXPECT_TRUE(members.members(0).recovering());
  EXPECT_THAT(Show(members), AllOf(HasSubstr("waits for the recovery"), Not(HasSubstr("loading"))));
  const auto status = aggregator_.Call<v1::ServiceStatus>(
      &v1::Admin::Stub::GetStatus, Aggregator::About<v1::GetStatusRequest>());
  EXPECT_EQ(1u, status.workers());
  EXPECT_THAT(Show(status), HasSubstr(" 1 job, 1 worker, "));
}

TEST_F(AdminTest, AnOpenRoundNamesWhomItWaitsForAndForWhat) {
  Join({&a_, &b_});
  a_.Begin();
  a_.Push(0, GradientOf(0, kElements));
  a_.Commit();
  b_.Begin();
  b_.PushFrame(b_.streams[0], 0, 0, 1, GradientOf(0, kElements).substr(0, kChunkBytes));
  auto request = Aggregator::About<v1::ListRoundsRequest>();
  request.set_lane("");
  const auto rounds =
      aggregator_.Call<v1::ListRoundsResponse>(&v1::Admin::Stub::ListRounds, request);
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  ASSERT_EQ(1, rounds.lanes_size());
  EXPECT_EQ(kLane, rounds.lanes(0).lane());
  const v1::OpenRoundStatus& open = rounds.lanes(0).open();
  EXPECT_EQ(1u, open.round());
  EXPECT_EQ(v1::ROUND_PHASE_COLLECT, open.phase());
  ASSERT_EQ(1, open.waiting_size());
  EXPECT_EQ("b", open.waiting(0).worker());
  EXPECT_EQ("weight", open.waiting(0).what());
  EXPECT_EQ(1u, open.waiting(0).missing_chunks());
  EXPECT_EQ(0u, open.waiting(0).waited_ns()) << "by a clock that stands still";
  EXPECT_THAT(Show(rounds), HasSubstr("b (last seen"));
  aggregator_.clock.Advance(absl::Seconds(2));
  const auto later =
      aggregator_.Call<v1::ListRoundsResponse>(&v1::Admin::Stub::ListRounds, request);
  EXPECT_EQ(2e9, static_cast<double>(later.lanes(0).open().waiting(0).waited_ns()));
  EXPECT_EQ(2e9, static_cast<double>(later.lanes(0).open().open_ns()));
  EXPECT_THAT(Show(later), HasSubstr("weight for 2"));
  aggregator_.Call<v1::ListRoundsResponse>(&v1::Admin::Stub::ListRounds,
                                           Aggregator::About<v1::ListRoundsRequest>());
  // For lane "gradients", which does not exist.
  EXPECT_TRUE(absl::IsNotFound(aggregator_.status)) << aggregator_.status;
}

// The counters do not depend on how many events are remembered.
TEST_F(AdminTest, RoundsAreCountedBeyondTheEventsThatAreRemembered) {
  Join({&a_, &b_});
  for (int round = 0; round < 60; ++round) CommitOneRound();
  const auto jobs = aggregator_.Call<v1::ListJobsResponse>(
      &v1::Admin::Stub::ListJobs, Aggregator::About<v1::ListJobsRequest>());
  EXPECT_LE(aggregator_.events.After(0, 1000).size(), 100u);
  EXPECT_EQ(60u, jobs.jobs(0).committed_rounds());
}

TEST_F(AdminTest, PastRoundsHaveTheirRecord) {
  Join({&a_, &b_});
  CommitOneRound();
  CommitOneRound();
  auto request = Aggregator::About<v1::ListRoundsRequest>();
  request.set_lane(kLane);
  request.set_last(1);
  const auto rounds =
      aggregator_.Call<v1::ListRoundsResponse>(&v1::Admin::Stub::ListRounds, request);
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  ASSERT_EQ(1, rounds.lanes(0).past_size());
  EXPECT_FALSE(rounds.lanes(0).has_open());
  const v1::VerdictRecord& record = rounds.lanes(0).past(0).record();
  EXPECT_EQ(2u, record.round());
  EXPECT_EQ(v1::OUTCOME_COMMITTED, record.value().outcome());
  EXPECT_EQ(2, record.value().contributors_size());
  EXPECT_GT(rounds.lanes(0).past(0).gradient_norm(), 0);
  EXPECT_EQ(2u, record.value().world_size());
  EXPECT_THAT(Show(rounds), AllOf(HasSubstr("average"), HasSubstr("2 of 2")));
  const std::string& last = rounds.lanes(0).past(0).waited_for();
  EXPECT_TRUE(last == "a" || last == "b") << last;
  EXPECT_THAT(Show(rounds), HasSubstr(absl::StrCat(last, " (")));
  EXPECT_THAT(Show(rounds), HasSubstr("committed"));
}

TEST_F(AdminTest, PastRoundsHaveTheirTimes) {
  Join({&a_, &b_});
  CommitOneRound();
  aggregator_.clock.Advance(absl::Seconds(2));
  CommitOneRound();
  aggregator_.clock.Advance(absl::Seconds(3));
  auto request = Aggregator::About<v1::ListRoundsRequest>();
  request.set_lane(kLane);
  request.set_last(2);
  const absl::Time before = absl::Now();
  const auto rounds =
      aggregator_.Call<v1::ListRoundsResponse>(&v1::Admin::Stub::ListRounds, request);
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  const absl::Time sent = absl::FromUnixNanos(static_cast<int64_t>(rounds.time_unix_ns()));
  EXPECT_GE(sent, before - absl::Seconds(1));
  EXPECT_LE(sent, absl::Now() + absl::Seconds(1));
  ASSERT_EQ(2, rounds.lanes(0).recent_size());
  const v1::RoundSummary& last = rounds.lanes(0).recent(0);
  const v1::RoundSummary& first = rounds.lanes(0).recent(1);
  EXPECT_EQ(last.age_ns(), 3'000'000'000u);
  EXPECT_EQ(first.age_ns(), 5'000'000'000u);
  ASSERT_EQ(2, last.arrivals_size());
  EXPECT_EQ(last.waited_for(), last.arrivals(1).worker());
  EXPECT_EQ(last.gather_ns(), last.arrivals(0).after_ns());
  EXPECT_EQ(last.gather_ns() + last.wait_ns(), last.arrivals(1).after_ns());
}

TEST(ShowTest, TheArrivalsOfARoundNameTheLastAndWhatItOwed) {
  v1::ListRoundsResponse rounds;
  v1::LaneRounds& lane = *rounds.add_lanes();
  lane.set_lane("default");
  v1::RoundSummary& round = *lane.add_recent();
  round.set_round(7);
  round.set_duration_ns(4'000'000'000);
  round.set_gather_ns(1'500'000'000);
  round.set_wait_ns(2'000'000'000);
  round.set_waited_for("w1");
  round.set_owed("layer3.weight");
  round.set_first_arrival_ns(1'000'000'000);
  round.set_age_ns(10'000'000'000);
  const std::pair<const char*, uint64_t> arrivals[] = {{"w2", 1000}, {"w0", 1500}, {"w1", 3500}};
  for (const auto& [worker, after_ms] : arrivals) {
    v1::Arrival& arrival = *round.add_arrivals();
    arrival.set_worker(worker);
    arrival.set_after_ns(after_ms * 1'000'000);
  }
  EXPECT_THAT(Show(rounds), ContainsRegex("LANE +ROUND +LAST +BY +OWED +SINCE +ARRIVED\n"
                                          "default +7 +w1 +2s +layer3.weight +12.5s ago +"
                                          "w2 0, w0 \\+500ms, w1 \\+2.5s\n"));
  round.add_late("w3");
  round.add_deferred("w1");
  EXPECT_THAT(Show(rounds), ContainsRegex("w1 \\+2.5s, w3 late, w1 with its last\n"));
}

TEST_F(AdminTest, TheGoodputOfAJobAddsUp) {
  Join({&a_, &b_});
  CommitOneRound();
  aggregator_.clock.Advance(absl::Seconds(2));
  CommitOneRound();
  aggregator_.clock.Advance(absl::Milliseconds(500));
  const auto jobs = aggregator_.Call<v1::ListJobsResponse>(
      &v1::Admin::Stub::ListJobs, Aggregator::About<v1::ListJobsRequest>());
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  const v1::Goodput& goodput = jobs.jobs(0).goodput();
  ASSERT_EQ(goodput.uses_size(), 8);
  EXPECT_EQ(goodput.uses(0).use(), "worked");
  EXPECT_EQ(goodput.uses(0).time_ns(), 4'000'000'000u) << "2 s of each member";
  EXPECT_EQ(goodput.uses(0).open_ns(), 0u);
  EXPECT_EQ(goodput.uses(7).use(), "pending");
  EXPECT_EQ(goodput.uses(7).time_ns(), 1'000'000'000u) << "since the verdict";
  EXPECT_EQ(goodput.uses(7).open_ns(), 1'000'000'000u);
  EXPECT_EQ(goodput.ratio(), 0.8);
  EXPECT_THAT(Show(goodput), ContainsRegex("\nworked +4s +80.0% +0\n"));
  EXPECT_THAT(Show(goodput), ContainsRegex("\npending +1s +20.0% +1s\nall +5s +100.0% +1s\n"));
}

TEST(ShowTest, ARoundWithoutANormHasNone) {
  v1::ListRoundsResponse rounds;
  v1::LaneRounds& lane = *rounds.add_lanes();
  lane.set_lane("default");
  for (const bool floating : {true, false}) {
    v1::RoundStatus& past = *lane.add_past();
    past.mutable_record()->set_round(floating ? 2 : 1);
    v1::RoundValue& value = *past.mutable_record()->mutable_value();
    value.set_outcome(v1::OUTCOME_COMMITTED);
    value.mutable_spec()->set_op(v1::REDUCE_OP_SUM);
    value.add_contributors();
    value.set_world_size(3);
    value.set_divisor(1);
    if (floating) past.set_gradient_norm(0);
  }
  const std::string text = Show(rounds);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const auto cells = [&](size_t line) {
    return std::vector<std::string>(absl::StrSplit(lines.at(line), ' ', absl::SkipEmpty()));
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(cells(1),
              ElementsAre("default", "2", "committed", "-", "sum", "1", "of", "3", "1", "0", "-"));
  EXPECT_THAT(cells(2),
              ElementsAre("default", "1", "committed", "-", "sum", "1", "of", "3", "1", "-", "-"));
}

TEST_F(AdminTest, EventsComeFirstThoseThatAreRememberedThenNewOnes) {
  Join({&a_, &b_});
  grpc::ClientContext context;
  const auto reader =
      aggregator_.stub->WatchEvents(&context, Aggregator::About<v1::WatchEventsRequest>());
  v1::Event event;
  uint64_t last = 0;
  while (event.kind() != "generation") {
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_EQ(last + 1, event.sequence());
    last = event.sequence();
  }
  EXPECT_EQ(kTerm, event.term());
  EXPECT_EQ(1u, context.GetServerInitialMetadata().count(kLastEventMetadata));
  a_.Begin();
  while (event.kind() != "round_opened") ASSERT_TRUE(reader->Read(&event));
  EXPECT_THAT(Show(event), AllOf(HasSubstr("round_opened"), HasSubstr("lane=model")));
  context.TryCancel();
  EXPECT_EQ(grpc::StatusCode::CANCELLED, reader->Finish().error_code());
}

TEST_F(AdminTest, EventsOfOneJobAfterANumber) {
  Note other;
  other.job = "other";
  aggregator_.events.Add(other, aggregator_.clock.Now());
  Join({&a_, &b_});
  auto request = Aggregator::About<v1::WatchEventsRequest>();
  request.set_after(2);
  grpc::ClientContext context;
  const auto reader = aggregator_.stub->WatchEvents(&context, request);
  v1::Event event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(3u, event.sequence());
  EXPECT_EQ(kJob, event.job());
  context.TryCancel();
}

TEST_F(AdminTest, TheLastEventThatIsToldIsOfTheJobThatIsAskedFor) {
  for (const char* job : {"quiet", "busy"}) {
    Note note;
    note.job = job;
    aggregator_.events.Add(note, aggregator_.clock.Now());
  }
  const uint64_t last = aggregator_.events.Last("quiet");
  EXPECT_LT(last, aggregator_.events.Last("busy"));
  EXPECT_EQ(0u, aggregator_.events.Last("nobody"));
  auto request = Aggregator::About<v1::WatchEventsRequest>();
  request.set_job("quiet");
  grpc::ClientContext context;
  const auto reader = aggregator_.stub->WatchEvents(&context, request);
  reader->WaitForInitialMetadata();
  const auto& metadata = context.GetServerInitialMetadata();
  const auto told = metadata.find(kLastEventMetadata);
  ASSERT_NE(told, metadata.end());
  EXPECT_EQ(std::to_string(last), std::string(told->second.data(), told->second.size()));
  context.TryCancel();
}

TEST_F(AdminTest, WatchersEndWithTheService) {
  grpc::ClientContext context;
  const auto reader =
      aggregator_.stub->WatchEvents(&context, Aggregator::About<v1::WatchEventsRequest>());
  reader->WaitForInitialMetadata();
  aggregator_.admin->Stop();
  v1::Event event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(grpc::StatusCode::UNAVAILABLE, reader->Finish().error_code());
}

TEST_F(AdminTest, AnEvictedWorkerIsTold) {
  Join({&a_, &b_});
  auto request = Aggregator::About<v1::EvictRequest>();
  request.set_worker("b");
  request.set_reason("wrong data\nset");
  const auto change = aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::Evict, request);
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  EXPECT_THAT(change.text(), HasSubstr("Worker b"));
  const Ended ended = b_.Await<Ended>();
  EXPECT_EQ(ErrorCode::kEvicted, ended.error.code);
  EXPECT_THAT(ended.error.text, AllOf(HasSubstr("wrong data"), Not(HasSubstr("\n"))));
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::Evict, request);
  EXPECT_TRUE(absl::IsNotFound(aggregator_.status)) << aggregator_.status;
}

TEST_F(AdminTest, ADrainedWorkerIsTold) {
  Join({&a_, &b_});
  auto request = Aggregator::About<v1::DrainWorkerRequest>();
  request.set_worker("b");
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::DrainWorker, request);
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  EXPECT_FALSE(b_.Await<Drain>().service);
}

TEST_F(AdminTest, AProcessThatExitedIsNotWaitedFor) {
  Join({&a_, &b_});
  auto request = Aggregator::About<v1::ReportExitRequest>();
  request.set_worker("b");
  request.set_nonce(12345);
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::ReportExit, request);
  EXPECT_TRUE(absl::IsFailedPrecondition(aggregator_.status)) << aggregator_.status;
  request.set_nonce(0);
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::ReportExit, request);
  EXPECT_TRUE(aggregator_.status.ok()) << aggregator_.status;
}

TEST_F(AdminTest, ASuspendedJobGoesOnWhenItIsResumed) {
  Join({&a_, &b_});
  const auto state = [&] {
    return aggregator_
        .Call<v1::ListJobsResponse>(&v1::Admin::Stub::ListJobs,
                                    Aggregator::About<v1::ListJobsRequest>())
        .jobs(0)
        .state();
  };
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::Pause,
                                       Aggregator::About<v1::PauseRequest>());
  EXPECT_EQ(v1::JOB_STATE_SUSPENDED, state());
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::Resume,
                                       Aggregator::About<v1::ResumeRequest>());
  EXPECT_EQ(v1::JOB_STATE_RUNNING, state());
}

TEST_F(AdminTest, SettingsOfARunningJobAreSetWithinTheBounds) {
  Join({&a_, &b_});
  const auto set = [&](auto change) {
    auto request = Aggregator::About<v1::SetJobRequest>();
    request.clear_min_workers();
    request.clear_max_workers();
    change(request);
    return aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::SetJob, request).text();
  };
  const std::string text = set([](v1::SetJobRequest& request) {
    request.set_min_workers(1);
    request.set_max_workers(5);
    request.set_loss_policy(v1::LOSS_POLICY_ABORT);
  });
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  EXPECT_THAT(text, HasSubstr("min_workers = 1, max_workers = 5, loss_policy = abort"));
  const auto jobs = aggregator_.Call<v1::ListJobsResponse>(
      &v1::Admin::Stub::ListJobs, Aggregator::About<v1::ListJobsRequest>());
  EXPECT_EQ(1u, jobs.jobs(0).settings().min_workers());
  EXPECT_EQ(5u, jobs.jobs(0).settings().max_workers());
  EXPECT_EQ(v1::LOSS_POLICY_ABORT, jobs.jobs(0).loss_policy());
  EXPECT_EQ(v1::LATE_POLICY_WAIT, jobs.jobs(0).late_policy());

  set([](v1::SetJobRequest& request) { request.set_max_workers(1); });
  EXPECT_TRUE(absl::IsFailedPrecondition(aggregator_.status)) << aggregator_.status;
  EXPECT_THAT(std::string(aggregator_.status.message()), HasSubstr("it has 2 workers"));
  set([](v1::SetJobRequest& request) { request.set_late_policy(v1::LATE_POLICY_EVICT); });
  EXPECT_THAT(std::string(aggregator_.status.message()), HasSubstr("round.evict_late_after"));
  set([](v1::SetJobRequest&) {});
  EXPECT_TRUE(absl::IsInvalidArgument(aggregator_.status)) << aggregator_.status;
  set([](v1::SetJobRequest& request) {
    request.set_job("nobody");
    request.set_min_workers(1);
  });
  EXPECT_TRUE(absl::IsNotFound(aggregator_.status)) << aggregator_.status;
}

TEST(AdminWithStateFile, WhatIsSetIsWrittenBeforeTheAnswer) {
  HeldStateFile file;
  Aggregator aggregator(nullptr, &file);
  const Model model = AverageOf({F32("weight", kElements)}, 2);
  RigWorker a(aggregator, "a", model);
  RigWorker b(aggregator, "b", model);
  Join({&a, &b});
  const auto set_max = [&](uint32_t workers) {
    auto request = Aggregator::About<v1::SetJobRequest>();
    request.clear_min_workers();
    request.set_max_workers(workers);
    return aggregator.Call<v1::ChangeResponse>(&v1::Admin::Stub::SetJob, request).text();
  };
  {
    MutexLock lock(file.mutex);
    file.held = true;
  }
  std::atomic<bool> answered{false};
  std::string text;
  std::thread operator_thread([&] {
    text = set_max(5);
    answered = true;
  });
  {
    MutexLock lock(file.mutex);
    while (!file.written.has_value()) file.changed.Wait(file.mutex);
    EXPECT_EQ(5u, file.written->settings.max_workers);
    EXPECT_FALSE(answered);
    file.held = false;
    file.changed.NotifyAll();
  }
  operator_thread.join();
  EXPECT_THAT(text, HasSubstr("max_workers = 5"));
  EXPECT_THAT(text, HasSubstr("until another run begins."));
  {
    MutexLock lock(file.mutex);
    file.result = absl::UnavailableError("The disk is full.");
  }
  EXPECT_THAT(set_max(6), HasSubstr("until the aggregator restarts or another run begins."));
  {
    MutexLock lock(file.mutex);
    file.held = true;
  }
  set_max(7);
  EXPECT_TRUE(absl::IsDeadlineExceeded(aggregator.status)) << aggregator.status;
  EXPECT_THAT(aggregator.status.message(),
              HasSubstr("Job job is set, and the change is in force, but the state file is not"));
  MutexLock lock(file.mutex);
  EXPECT_EQ(7u, file.written->settings.max_workers);
  file.held = false;
  file.changed.NotifyAll();
}

TEST_F(AdminTest, ADumpHasTheStateAndNothingSecret) {
  Join({&a_, &b_});
  CommitOneRound();
  a_.round = b_.round = 2;
  a_.Begin();
  a_.Push(0, GradientOf(0, kElements));
  const auto dump = [&](const std::string& job) {
    return aggregator_
        .Call<v1::DumpResponse>(&v1::Admin::Stub::Dump, Aggregator::About<v1::DumpRequest>(job))
        .text();
  };
  const std::string text = dump("");
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  EXPECT_THAT(text, AllOf(HasSubstr("service term=7 jobs=1"), HasSubstr("job job id="),
                          HasSubstr("state=RUNNING"), HasSubstr("worker a state=MEMBER"),
                          HasSubstr("verdict 1 COMMITTED"), HasSubstr("round 2 phase=COLLECT"),
                          HasSubstr("member b"), HasSubstr("contribution=AWAITED")));
  for (const RigWorker* worker : {&a_, &b_}) {
    EXPECT_THAT(text, Not(HasSubstr(std::to_string(worker->welcome->token))))
        << "a session's token";
    EXPECT_THAT(text, Not(HasSubstr(std::to_string(std::hash<std::string>()(worker->id) | 1))))
        << "a nonce";
  }
  EXPECT_THAT(dump(kJob), AllOf(HasSubstr("job job id="), Not(HasSubstr("service term"))));
  dump("nobody");
  EXPECT_TRUE(absl::IsNotFound(aggregator_.status)) << aggregator_.status;
}

TEST_F(AdminTest, WhatIsNotHaltedIsNotRecovered) {
  Join({&a_, &b_});
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::Recover,
                                       Aggregator::About<v1::RecoverRequest>());
  EXPECT_TRUE(absl::IsFailedPrecondition(aggregator_.status)) << aggregator_.status;
}

TEST_F(AdminTest, DrainingTheServiceIsAskedOfTheProgram) {
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::DrainService,
                                       Aggregator::About<v1::DrainServiceRequest>());
  EXPECT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  EXPECT_TRUE(aggregator_.ended);
}

TEST_F(AdminTest, LimitsShowWhatIsInUse) {
  Join({&a_, &b_});
  const auto limits = aggregator_.Call<v1::LimitsResponse>(
      &v1::Admin::Stub::GetLimits, Aggregator::About<v1::GetLimitsRequest>());
  ASSERT_TRUE(aggregator_.status.ok()) << aggregator_.status;
  ASSERT_EQ(5, limits.limits_size());
  EXPECT_EQ("memory.budget", limits.limits(0).name());
  EXPECT_GT(limits.limits(0).in_use(), 0u);
  EXPECT_EQ("memory.budget", limits.limits(2).name());
  EXPECT_EQ(kJob, limits.limits(2).job());
  EXPECT_EQ(limits.limits(0).in_use(), limits.limits(2).in_use()) << "there is no other job";
  EXPECT_EQ(2u, limits.limits(3).in_use());
  EXPECT_EQ("limits.lanes", limits.limits(4).name());
  EXPECT_EQ(1u, limits.limits(4).in_use());
  ASSERT_EQ(2, limits.memory_size());
  EXPECT_EQ("description", limits.memory(0).kind());
  EXPECT_GT(limits.memory(0).bytes(), 0u);
  EXPECT_THAT(Show(limits), HasSubstr("idle         4.0MiB\nall "));
}

TEST_F(AdminTest, LimitsShowThePaceOfAJobIfItIsBounded) {
  Aggregator bounded(nullptr, nullptr, 1000);
  RigWorker a(bounded, "a", model_);
  RigWorker b(bounded, "b", model_);
  Join({&a, &b});
  const auto limits = bounded.Call<v1::LimitsResponse>(&v1::Admin::Stub::GetLimits,
                                                       Aggregator::About<v1::GetLimitsRequest>());
  ASSERT_EQ(6, limits.limits_size());
  EXPECT_EQ("limits.job_rounds", limits.limits(5).name());
  EXPECT_EQ(1000u, limits.limits(5).limit());
  EXPECT_EQ(kJob, limits.limits(5).job());
}

TEST_F(AdminTest, LimitsDoNotCountLanesOfAJobThatAllWorkersHaveLeft) {
  Join({&a_, &b_});
  CommitOneRound();
  for (RigWorker* worker : {&a_, &b_}) worker->Send(Leave{});
  const auto limits = aggregator_.Call<v1::LimitsResponse>(
      &v1::Admin::Stub::GetLimits, Aggregator::About<v1::GetLimitsRequest>());
  ASSERT_EQ("limits.lanes", limits.limits(4).name());
  EXPECT_EQ(0u, limits.limits(4).in_use());
}

TEST_F(AdminTest, WhatIsNotThereIsNotFound) {
  aggregator_.Call<v1::ListMembersResponse>(&v1::Admin::Stub::ListMembers,
                                            Aggregator::About<v1::ListMembersRequest>("nobody"));
  EXPECT_TRUE(absl::IsNotFound(aggregator_.status)) << aggregator_.status;
  EXPECT_THAT(std::string(aggregator_.status.message()), HasSubstr("basinctl status"));
}

// A damaged request can reach a handler as one of zeros: nothing may happen.
TEST_F(AdminTest, ARequestOfZerosChangesNothing) {
  Join({&a_, &b_});
  const auto refused = [&] { return absl::IsInvalidArgument(aggregator_.status); };
  aggregator_.Call<v1::ServiceStatus>(&v1::Admin::Stub::GetStatus, v1::GetStatusRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ListJobsResponse>(&v1::Admin::Stub::ListJobs, v1::ListJobsRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ListMembersResponse>(&v1::Admin::Stub::ListMembers,
                                            v1::ListMembersRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ListRoundsResponse>(&v1::Admin::Stub::ListRounds, v1::ListRoundsRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::LimitsResponse>(&v1::Admin::Stub::GetLimits, v1::GetLimitsRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::DrainService, v1::DrainServiceRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::DrainWorker, v1::DrainWorkerRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::Evict, v1::EvictRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::Pause, v1::PauseRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::Resume, v1::ResumeRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::Recover, v1::RecoverRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::SetJob, v1::SetJobRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::DumpResponse>(&v1::Admin::Stub::Dump, v1::DumpRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  aggregator_.Call<v1::ChangeResponse>(&v1::Admin::Stub::ReportExit, v1::ReportExitRequest());
  EXPECT_TRUE(refused()) << aggregator_.status;
  EXPECT_FALSE(aggregator_.ended);
  CommitOneRound();
}

TEST_F(AdminTest, Fault_N10_ARequestThatIsNoMessageIsAnsweredInWords) {
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(aggregator_.admin->port()),
                                           grpc::InsecureChannelCredentials());
  for (const char* method : {"Pause", "WatchEvents"}) {
    RawStream call(channel, absl::StrCat("/basin.v1.Admin/", method));
    call.Write("\x0a\xff");  // A name of 255 bytes, which no job has.
    call.CloseWrites();
    const absl::Status end = call.AwaitEnd();
    EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
    EXPECT_THAT(std::string(end.message()),
                AllOf(HasSubstr(absl::StrCat("/basin.v1.Admin/", method)),
                      HasSubstr("not a valid protobuf message"), HasSubstr("admin.proto")));
  }
}

TEST_F(AdminTest, Fault_N10_AMethodThatIsNotThereIsAnsweredInWords) {
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(aggregator_.admin->port()),
                                           grpc::InsecureChannelCredentials());
  for (const char* path : {"/basin.v1.Admin/Walk", "/basin.v1.Session/Run", "/nothing"}) {
    RawStream call(channel, path);
    call.Write("x");
    call.CloseWrites();
    const absl::Status end = call.AwaitEnd();
    EXPECT_TRUE(absl::IsUnimplemented(end)) << end;
    EXPECT_THAT(std::string(end.message()),
                AllOf(HasSubstr(absl::StrCat("no method \"", path, "\"")),
                      HasSubstr("Workers connect to grpc.listen")));
  }
}

TEST_F(AdminTest, ALoopThatDoesNotAnswerIsATimeout) {
  aggregator_.engine.Stop();
  aggregator_.Call<v1::ListJobsResponse>(&v1::Admin::Stub::ListJobs,
                                         Aggregator::About<v1::ListJobsRequest>());
  EXPECT_TRUE(absl::IsDeadlineExceeded(aggregator_.status)) << aggregator_.status;
}

// The table is tested in tests/aggregator/auth; this tests that each call asks it about its own
// row.
TEST(AdminServerTest, Fault_S2_EachCallIsAnsweredAsTheTableOfRolesSays) {
  std::string lines;
  const auto grant = [&](const std::string& role, const std::string& jobs) {
    const std::string token = "basin_" + role + jobs;
    absl::StrAppend(&lines, role, " ", jobs, " ", ToString(HashOf(token)), " test\n");
    return token;
  };
  const std::string tokens[] = {grant("worker", "*"), grant("observer", "*"), grant("admin", "*")};
  const std::string others[] = {grant("worker", "other"), grant("observer", "other"),
                                grant("admin", "other")};
  absl::StatusOr<Grants> grants = Grants::Parse(lines);
  ASSERT_TRUE(grants.ok()) << grants.status();
  Gatekeeper gatekeeper;
  gatekeeper.Replace(*std::move(grants));
  Aggregator aggregator(&gatekeeper);

  int cells = 0;
  const auto check = [&](Rpc rpc, const std::function<void()>& call) {
    ++cells;
    aggregator.token.clear();
    call();
    EXPECT_TRUE(absl::IsUnauthenticated(aggregator.status)) << RpcName(rpc);
    for (const CallerRole role : {CallerRole::kWorker, CallerRole::kObserver, CallerRole::kAdmin}) {
      const std::string what = absl::StrCat(RoleName(role), " ", RpcName(rpc));
      aggregator.token = tokens[static_cast<size_t>(role)];
      call();
      EXPECT_EQ(absl::IsPermissionDenied(aggregator.status), !Allows(role, rpc))
          << what << ": " << aggregator.status;
      EXPECT_FALSE(absl::IsUnauthenticated(aggregator.status)) << what;
      aggregator.token = others[static_cast<size_t>(role)];
      call();
      const bool may = Allows(role, rpc) && ScopeOf(rpc) == Scope::kAny;
      EXPECT_EQ(absl::IsPermissionDenied(aggregator.status), !may)
          << what << " of another job: " << aggregator.status;
    }
  };
  const auto unary = [&](Rpc rpc, auto method, auto request, auto response) {
    check(rpc, [&] { aggregator.Call<decltype(response)>(method, request); });
  };
  using Stub = v1::Admin::Stub;
  using v1::ChangeResponse;
  unary(Rpc::kGetStatus, &Stub::GetStatus, Aggregator::About<v1::GetStatusRequest>(),
        v1::ServiceStatus());
  unary(Rpc::kListJobs, &Stub::ListJobs, Aggregator::About<v1::ListJobsRequest>(),
        v1::ListJobsResponse());
  unary(Rpc::kListMembers, &Stub::ListMembers, Aggregator::About<v1::ListMembersRequest>(),
        v1::ListMembersResponse());
  unary(Rpc::kListRounds, &Stub::ListRounds, Aggregator::About<v1::ListRoundsRequest>(),
        v1::ListRoundsResponse());
  unary(Rpc::kListShards, &Stub::ListShards, Aggregator::About<v1::ListShardsRequest>(),
        v1::ListShardsResponse());
  unary(Rpc::kGetLimits, &Stub::GetLimits, Aggregator::About<v1::GetLimitsRequest>(),
        v1::LimitsResponse());
  unary(Rpc::kDump, &Stub::Dump, Aggregator::About<v1::DumpRequest>(), v1::DumpResponse());
  unary(Rpc::kDrainWorker, &Stub::DrainWorker, Aggregator::About<v1::DrainWorkerRequest>(),
        ChangeResponse());
  unary(Rpc::kDrainService, &Stub::DrainService, Aggregator::About<v1::DrainServiceRequest>(),
        ChangeResponse());
  unary(Rpc::kStepDown, &Stub::StepDown, Aggregator::About<v1::StepDownRequest>(),
        ChangeResponse());
  unary(Rpc::kEvict, &Stub::Evict, Aggregator::About<v1::EvictRequest>(), ChangeResponse());
  unary(Rpc::kPause, &Stub::Pause, Aggregator::About<v1::PauseRequest>(), ChangeResponse());
  unary(Rpc::kResume, &Stub::Resume, Aggregator::About<v1::ResumeRequest>(), ChangeResponse());
  unary(Rpc::kSetJob, &Stub::SetJob, Aggregator::About<v1::SetJobRequest>(), ChangeResponse());
  unary(Rpc::kRecover, &Stub::Recover, Aggregator::About<v1::RecoverRequest>(), ChangeResponse());
  unary(Rpc::kReportExit, &Stub::ReportExit, Aggregator::About<v1::ReportExitRequest>(),
        ChangeResponse());
  check(Rpc::kWatchEvents, [&] {
    grpc::ClientContext context;
    if (!aggregator.token.empty()) {
      context.AddMetadata(kAuthorizationMetadata, kBearer + aggregator.token);
    }
    const auto reader =
        aggregator.stub->WatchEvents(&context, Aggregator::About<v1::WatchEventsRequest>());
    reader->WaitForInitialMetadata();
    // A call that is served begins with it and does not end; one that is refused has ended.
    if (context.GetServerInitialMetadata().count(kLastEventMetadata) > 0) context.TryCancel();
    aggregator.status = FromGrpc(reader->Finish());
  });
  EXPECT_EQ(kRpcs - 3, cells) << "all but those of workers and shards";
}

// Grants with a token each, which is the role, the jobs and the name.
class Granted {
 public:
  void Add(const std::string& role, const std::string& jobs, const std::string& name) {
    absl::StrAppend(&lines_, role, " ", jobs, " ", ToString(HashOf(role + jobs + name)), " ", name,
                    "\n");
    absl::StatusOr<Grants> grants = Grants::Parse(lines_);
    ASSERT_TRUE(grants.ok()) << grants.status();
    gatekeeper.Replace(*std::move(grants));
  }

  Gatekeeper gatekeeper;

 private:
  std::string lines_;
};

TEST(AdminServerTest, AChangeIsReportedWithTheGrantOfItsCaller) {
  Granted granted;
  granted.Add("admin", "*", "on-call");
  Aggregator aggregator(&granted.gatekeeper);
  aggregator.token = "admin*on-call";
  const Model model = AverageOf({F32("weight", kElements)}, 2);
  RigWorker a(aggregator, "a", model);
  RigWorker b(aggregator, "b", model);
  Join({&a, &b});
  using Stub = v1::Admin::Stub;
  const auto change = [&](auto method, const auto& request) {
    aggregator.Call<v1::ChangeResponse>(method, request);
    EXPECT_TRUE(aggregator.status.ok()) << aggregator.status;
    return aggregator.Changes().back();
  };
  const std::string who = absl::StrCat(kJob, ": on-call at 127.0.0.1: ");
  EXPECT_THAT(change(&Stub::Pause, Aggregator::About<v1::PauseRequest>()),
              AllOf(HasSubstr(who), HasSubstr("is suspended")));
  EXPECT_THAT(change(&Stub::Resume, Aggregator::About<v1::ResumeRequest>()),
              AllOf(HasSubstr(who), HasSubstr("continues")));
  auto set = Aggregator::About<v1::SetJobRequest>();
  set.set_min_workers(1);
  set.clear_max_workers();
  EXPECT_THAT(change(&Stub::SetJob, set), AllOf(HasSubstr(who), HasSubstr("min_workers = 1")));
  auto evict = Aggregator::About<v1::EvictRequest>();
  evict.set_worker("b");
  evict.clear_reason();
  EXPECT_THAT(change(&Stub::Evict, evict), AllOf(HasSubstr(who), HasSubstr("is evicted")));
  EXPECT_THAT(b.Await<Ended>().error.text, HasSubstr("by on-call"));
  auto drain = Aggregator::About<v1::DrainWorkerRequest>();
  drain.set_worker("a");
  EXPECT_THAT(change(&Stub::DrainWorker, drain), AllOf(HasSubstr(who), HasSubstr("is draining")));
  EXPECT_THAT(change(&Stub::DrainService, Aggregator::About<v1::DrainServiceRequest>()),
              HasSubstr(": on-call at 127.0.0.1: The aggregator drains"));
  const size_t changes = aggregator.Changes().size();
  aggregator.Call<v1::ChangeResponse>(&Stub::Evict, evict);
  EXPECT_TRUE(absl::IsNotFound(aggregator.status));
  EXPECT_EQ(changes, aggregator.Changes().size()) << "what failed changed nothing";
}

TEST(AdminServerTest, Fault_S2_RefusalsHaveAKindThatAPeerCannotMakeUp) {
  Granted granted;
  granted.Add("observer", "*", "dashboards");
  Aggregator aggregator(&granted.gatekeeper);
  using Stub = v1::Admin::Stub;
  aggregator.Call<v1::ServiceStatus>(&Stub::GetStatus, Aggregator::About<v1::GetStatusRequest>());
  aggregator.token = "observer*dashboards";
  for (const char* job : {"a", "b"}) {
    aggregator.Call<v1::ChangeResponse>(&Stub::Evict, Aggregator::About<v1::EvictRequest>(job));
    EXPECT_TRUE(absl::IsPermissionDenied(aggregator.status));
  }
  EXPECT_EQ("GetStatus no_credential ", aggregator.AwaitReport(0).kind);
  EXPECT_EQ("Evict wrong_role dashboards", aggregator.AwaitReport(1).kind);
  EXPECT_EQ("Evict wrong_role dashboards", aggregator.AwaitReport(2).kind);
  EXPECT_THAT(aggregator.AwaitReport(2).what, HasSubstr("Evict for job b was refused"));
}

TEST(AdminServerTest, WatchersAreBoundedByGrantAndSomeAreForOperators) {
  Granted granted;
  for (const char* name : {"a", "b", "c", "d"}) granted.Add("observer", "*", name);
  granted.Add("admin", "*", "on-call");
  granted.Add("admin", "team/*", "leads");
  Aggregator aggregator(&granted.gatekeeper);
  struct Watcher {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Event>> reader;
  };
  std::vector<std::unique_ptr<Watcher>> watchers;
  // Why there may not be another one; empty: it watches now.
  const auto watch = [&](const std::string& token, const std::string& job) {
    auto watcher = std::make_unique<Watcher>();
    watcher->context.AddMetadata(kAuthorizationMetadata, kBearer + token);
    auto request = Aggregator::About<v1::WatchEventsRequest>(job);
    watcher->reader = aggregator.stub->WatchEvents(&watcher->context, request);
    watcher->reader->WaitForInitialMetadata();
    if (watcher->context.GetServerInitialMetadata().count(kLastEventMetadata) > 0) {
      watchers.push_back(std::move(watcher));
      return std::string();
    }
    const absl::Status ended = FromGrpc(watcher->reader->Finish());
    EXPECT_TRUE(absl::IsResourceExhausted(ended)) << ended;
    return std::string(ended.message());
  };
  for (int i = 0; i < 8; ++i) EXPECT_EQ("", watch("observer*a", kJob)) << i;
  EXPECT_THAT(watch("observer*a", kJob), HasSubstr("a has 8 watchers"));
  for (const char* token : {"observer*b", "observer*c"}) {
    for (int i = 0; i < 8; ++i) EXPECT_EQ("", watch(token, kJob)) << token << i;
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ("", watch("observer*d", kJob)) << i;
  const auto full = AllOf(HasSubstr("has 28 watchers"), HasSubstr("is 28 for all"));
  EXPECT_THAT(watch("observer*d", kJob), full);
  EXPECT_THAT(watch("adminteam/*leads", "team/x"), full);
  for (int i = 0; i < 4; ++i) EXPECT_EQ("", watch("admin*on-call", kJob)) << i;
  EXPECT_THAT(watch("admin*on-call", kJob), HasSubstr("its limit is 32;"));
  // One that ends makes room.
  watchers.front()->context.TryCancel();
  while (!watch("admin*on-call", kJob).empty()) {
  }
  for (const auto& watcher : watchers) watcher->context.TryCancel();
}

// Its machine has failed, or the network between: nothing says that the watcher has gone.
TEST(AdminServerTest, Fault_N1_TheWatchersOfADeadPeerMakeRoom) {
  Granted granted;
  granted.Add("observer", "*", "a");
  Aggregator aggregator(&granted.gatekeeper, nullptr, 0, absl::Minutes(1), absl::Seconds(1));
  client::TcpRelay relay(aggregator.admin->port());
  const auto far =
      v1::Admin::NewStub(grpc::CreateChannel(relay.address(), grpc::InsecureChannelCredentials()));
  struct Watcher {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Event>> reader;
  };
  // Returns whether it watches.
  const auto watch = [&](v1::Admin::Stub& stub, Watcher& watcher) {
    watcher.context.AddMetadata(kAuthorizationMetadata, std::string(kBearer) + "observer*a");
    watcher.reader =
        stub.WatchEvents(&watcher.context, Aggregator::About<v1::WatchEventsRequest>());
    watcher.reader->WaitForInitialMetadata();
    return watcher.context.GetServerInitialMetadata().count(kLastEventMetadata) > 0;
  };
  std::vector<Watcher> watchers(8);
  for (Watcher& watcher : watchers) ASSERT_TRUE(watch(*far, watcher));
  relay.Freeze();
  Await([&] {
    Watcher another;
    const bool watches = watch(*aggregator.stub, another);
    another.context.TryCancel();
    another.reader->Finish();
    return watches;
  });
  for (Watcher& watcher : watchers) {
    watcher.context.TryCancel();
    watcher.reader->Finish();
  }
}

TEST(AdminServerTest, Fault_S6_AConnectionThatSaysNothingIsReportedAndCounted) {
  Aggregator aggregator(nullptr, nullptr, 0, absl::Milliseconds(100));
  RawHttp2 silent(aggregator.admin->port());
  EXPECT_EQ("", silent.AwaitClosed());
  const Aggregator::Report report = aggregator.AwaitReport(0);
  EXPECT_EQ("127.0.0.1", report.address);
  EXPECT_EQ("At admin.listen: It connected and sent nothing.", report.what);
  EXPECT_EQ(1u, aggregator.admin->counters().foreign_connections);
}

TEST(AdminServerTest, Fault_S6_AFloodOfConnectionsLeavesTheOperators) {
  Aggregator aggregator;
  const auto status = [&] {
    aggregator.Call<v1::ServiceStatus>(&v1::Admin::Stub::GetStatus,
                                       Aggregator::About<v1::GetStatusRequest>());
    return aggregator.status;
  };
  EXPECT_TRUE(status().ok());  // Its connection is not one of the new ones any more.
  std::vector<std::unique_ptr<RawHttp2>> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<RawHttp2>(aggregator.admin->port()));
  }
  EXPECT_EQ("", silent.front()->AwaitClosed());
  EXPECT_THAT(aggregator.AwaitReport(0).what, ContainsRegex("(It had|More than) 32 connections"));
  std::vector<std::unique_ptr<RawHttp2>> idle;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(std::make_unique<RawHttp2>(aggregator.admin->port()));
    idle.back()->Begin();
  }
  idle.front()->AwaitClosed();
  aggregator.AwaitReportOf("At admin.listen: It had 32 connections that had sent no valid message");
  EXPECT_GE(aggregator.admin->counters().floods, 1u);
  EXPECT_TRUE(status().ok());
}

TEST(AdminServerTest, AnAddressThatCannotBeListenedOnIsAnErrorWithAWayOut) {
  const Aggregator first;
  EventHistory events(1);
  AdminOptions options;
  options.address = "127.0.0.1:" + std::to_string(first.admin->port());
  Aggregator second;
  const auto started = AdminServer::Start(std::move(options), second.engine, events);
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(std::string(started.status().message()), HasSubstr("--admin-listen"));
}

}  // namespace
}  // namespace basin::aggregator

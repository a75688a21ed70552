// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/admin/admin_service.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aggregator/admin/dump.h"
#include "aggregator/admin/metadata.h"
#include "aggregator/admin/shards_view.h"
#include "aggregator/admin/view.h"
#include "aggregator/core/job_settings.h"
#include "aggregator/telemetry/ask.h"
#include "proto/status/status.h"
#include "proto/wire/admin.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"
#include "protocol/version.h"
#include "runtime/grpc/credentials.h"
#include "runtime/grpc/greeting.h"
#include "runtime/grpc/peer.h"

namespace basin::aggregator {
namespace {

// A loop that takes longer hangs.
constexpr std::chrono::seconds kLoopTimeout{5};

// How often a call that waits for events checks whether its caller is still there.
constexpr std::chrono::milliseconds kLookAtCaller{200};

// Each holds one of the server's threads (admin_server.cc), of which half are left to other calls.
// Some are only for administrators of all jobs, whom the observers of other teams must not keep
// out.
constexpr int kMostWatchers = 32;
constexpr int kWatchersOfOperators = 4;
constexpr int kMostWatchersOfAGrant = 8;

// Events that are read at once; each is small.
constexpr size_t kEventsAtOnce = 256;

v1::Limit LimitOf(const char* name, uint64_t limit, uint64_t in_use, const char* unit,
                  const JobName& job = "") {
  v1::Limit message;
  message.set_name(name);
  message.set_limit(limit);
  message.set_in_use(in_use);
  message.set_unit(unit);
  message.set_job(job);
  return message;
}

// A team stands for its jobs, so that whoever may see all of them sees it.
void AddTeams(const Coordinator& core, v1::LimitsResponse& limits) {
  if (core.config().max_team_jobs == 0) return;
  std::set<std::string_view> teams;
  for (const auto& [id, job] : core.jobs()) teams.insert(TeamOf(job.name));
  teams.erase("");
  for (const std::string_view team : teams) {
    *limits.add_limits() =
        LimitOf("limits.team_jobs", core.config().max_team_jobs, core.JobsOfTeam(team), "jobs",
                absl::StrCat(std::string(team), "/*"));
  }
}

LatePolicy PolicyIn(v1::LatePolicy policy) {
  if (policy == v1::LATE_POLICY_EVICT) return LatePolicy::kEvict;
  if (policy == v1::LATE_POLICY_CARRY) return LatePolicy::kCarry;
  return policy == v1::LATE_POLICY_LEAVE_OUT ? LatePolicy::kLeaveOut : LatePolicy::kWait;
}

SetJob SettingsIn(const v1::SetJobRequest& request) {
  SetJob set;
  set.job = request.job();
  if (request.has_min_workers()) set.min_workers = request.min_workers();
  if (request.has_max_workers()) set.max_workers = request.max_workers();
  if (request.loss_policy() != v1::LOSS_POLICY_UNSPECIFIED) {
    set.loss_policy =
        request.loss_policy() == v1::LOSS_POLICY_ABORT ? LossPolicy::kAbort : LossPolicy::kShrink;
  }
  if (request.late_policy() != v1::LATE_POLICY_UNSPECIFIED) {
    set.late_policy = PolicyIn(request.late_policy());
  }
  return set;
}

}  // namespace

AdminService::AdminService(AdminOptions options, Engine& engine, EventHistory& events,
                           Newcomers& newcomers)
    : options_(std::move(options)),
      engine_(engine),
      events_(events),
      newcomers_(newcomers),
      started_(std::chrono::steady_clock::now()) {}

void AdminService::Stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  news_.NotifyAll();
}

// ---- who may call

Credentials AdminService::CallerOf(const grpc::ServerContext* context) {
  Presented presented = PresentedBy(*context);
  return CredentialsOf(presented.token, std::move(presented.sans));
}

bool AdminService::MaySee(const Credentials& caller, Rpc rpc, const std::string& job) const {
  // A caller that may look only at its own job sees this too.
  return options_.gatekeeper == nullptr || options_.gatekeeper->MayCall(caller, rpc, job);
}

std::string AdminService::Caller::InWords() const {
  return absl::StrCat(grant.empty() ? "An operator" : grant, " at ", address);
}

template <typename Request>
absl::Status AdminService::Begin(const grpc::ServerContext* context, Rpc rpc,
                                 const Request& request, const std::string& job, Caller* caller) {
  Gatekeeper::Ruling ruling;
  if (options_.gatekeeper != nullptr) {
    ruling = options_.gatekeeper->Check(CallerOf(context), rpc, job);
    if (!ruling.for_peer.ok()) {
      if (options_.report != nullptr)
        options_.report(AddressIn(context->peer()), ruling.kind, ruling.for_operator);
      return ruling.for_peer;
    }
  }
  if (caller != nullptr) {
    caller->address = AddressIn(context->peer());
    if (ruling.grant.has_value()) caller->grant = ruling.grant->name;
    caller->for_all = !ruling.grant.has_value() ||
                      (ruling.grant->role == CallerRole::kAdmin && ruling.grant->CoversAllJobs());
  }
  absl::Status valid = wire::Check(request);
  if (valid.ok()) newcomers_.Introduced(context->peer());
  return valid;
}

absl::Status AdminService::NoSuchJob(const std::string& job) const {
  if (options_.leader != nullptr) {
    if (const LeaderInWords leader = options_.leader(); !leader.leads) {
      return absl::FailedPreconditionError(absl::StrCat("There is no job ", job,
                                                        " here, because this aggregator ",
                                                        leader.words, ". Ask the one that leads."));
    }
  }
  return absl::NotFoundError(
      absl::StrCat("There is no job ", job, ". `basinctl status` lists the jobs."));
}

// ---- how handlers reach the core

template <typename Response, typename Look>
absl::Status AdminService::LookFor(Response* response, Look look, Inspection inspect) {
  using Answer = std::pair<absl::Status, Response>;
  std::optional<Answer> answer = Ask<Answer>(
      engine_, kLoopTimeout,
      [look = std::move(look)](const Runner& runner, absl::Time now) {
        Answer found;
        found.first = look(runner, now, &found.second);
        return found;
      },
      inspect);
  if (!answer.has_value()) {
    return absl::DeadlineExceededError(
        "The aggregator's event loop does not answer; see /livez and basin_loop_delay_seconds.");
  }
  *response = std::move(answer->second);
  return answer->first;
}

template <typename Response, typename Look>
absl::Status AdminService::LookAtJob(const std::string& job, Response* response, Look look,
                                     Inspection inspect) {
  return LookFor(
      response,
      [job, why_not = NoSuchJob(job), look = std::move(look)](const Runner& runner, absl::Time now,
                                                              Response* found) {
        const Job* state = runner.core().FindJob(job);
        return state == nullptr ? why_not : look(*state, runner, runner.core().Lived(now), found);
      },
      inspect);
}

absl::Status AdminService::FindWorker(const std::string& job, const std::string& worker) {
  v1::ChangeResponse unused;
  return LookAtJob(job, &unused,
                   [worker](const Job& state, const Runner&, absl::Time, v1::ChangeResponse*) {
                     const std::optional<Slot> slot = state.workers.Find(worker);
                     if (slot.has_value() && state.workers[*slot].state != WorkerState::kLost) {
                       return absl::OkStatus();
                     }
                     return absl::NotFoundError(absl::StrCat("Job ", state.name, " has no worker ",
                                                             worker, ". `basinctl members ",
                                                             state.name, "` lists its workers."));
                   });
}

absl::Status AdminService::Do(Event command, const std::string& text,
                              v1::ChangeResponse* response) {
  engine_.Command(std::move(command));
  // The loop takes one thing after the other, so it has taken the command when it answers this.
  return LookFor(
      response,
      [text](const Runner&, absl::Time, v1::ChangeResponse* done) {
        done->set_text(text);
        return absl::OkStatus();
      },
      &Engine::InspectInOrder);
}

grpc::Status AdminService::Changed(const Caller& caller, const std::string& job,
                                   const absl::Status& done,
                                   const v1::ChangeResponse& response) const {
  if (done.ok() && options_.on_change != nullptr) {
    options_.on_change(job, absl::StrCat(caller.InWords(), ": ", response.text()));
  }
  return ToGrpc(done);
}

uint64_t AdminService::UptimeNanoseconds() const {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - started_).count());
}

// ---- queries

grpc::Status AdminService::GetStatus(grpc::ServerContext* context,
                                     const v1::GetStatusRequest* request,
                                     v1::ServiceStatus* response) {
  if (const absl::Status good = Begin(context, Rpc::kGetStatus, *request, ""); !good.ok())
    return ToGrpc(good);
  Greet(*context, options_.version);
  const absl::Status looked =
      LookFor(response, [](const Runner& runner, absl::Time, v1::ServiceStatus* status) {
        *status = ViewOf(runner.core());
        return absl::OkStatus();
      });
  response->set_version(options_.version);
  response->set_protocol_version(kProtocolVersion);
  response->set_contract_version(kContractVersion);
  response->set_term(engine_.term());
  if (options_.leader != nullptr) {
    const LeaderInWords leader = options_.leader();
    response->set_leader(leader.words);
    response->set_serving(response->serving() && leader.leads);
  }
  response->set_reduce_device(options_.reduce_device);
  response->set_uptime_ns(UptimeNanoseconds());
  return ToGrpc(looked);
}

grpc::Status AdminService::ListJobs(grpc::ServerContext* context,
                                    const v1::ListJobsRequest* request,
                                    v1::ListJobsResponse* response) {
  if (const absl::Status good = Begin(context, Rpc::kListJobs, *request, ""); !good.ok())
    return ToGrpc(good);
  const absl::Status looked =
      LookFor(response, [](const Runner& runner, absl::Time now, v1::ListJobsResponse* jobs) {
        *jobs = JobsOf(runner.core(), runner.core().Lived(now));
        return absl::OkStatus();
      });
  const Credentials caller = CallerOf(context);
  auto& jobs = *response->mutable_jobs();
  jobs.erase(std::remove_if(jobs.begin(), jobs.end(),
                            [&](const v1::JobStatus& job) {
                              return !MaySee(caller, Rpc::kListMembers, job.job());
                            }),
             jobs.end());
  return ToGrpc(looked);
}

grpc::Status AdminService::ListMembers(grpc::ServerContext* context,
                                       const v1::ListMembersRequest* request,
                                       v1::ListMembersResponse* response) {
  if (const absl::Status good = Begin(context, Rpc::kListMembers, *request, request->job());
      !good.ok())
    return ToGrpc(good);
  return ToGrpc(LookAtJob(
      request->job(), response,
      [](const Job& job, const Runner& runner, absl::Time lived, v1::ListMembersResponse* members) {
        *members = MembersOf(job, lived);
        AddPeers(job, runner, *members);
        return absl::OkStatus();
      }));
}

grpc::Status AdminService::ListRounds(grpc::ServerContext* context,
                                      const v1::ListRoundsRequest* request,
                                      v1::ListRoundsResponse* response) {
  if (const absl::Status good = Begin(context, Rpc::kListRounds, *request, request->job());
      !good.ok())
    return ToGrpc(good);
  return ToGrpc(LookAtJob(
      request->job(), response,
      [lane = request->lane(), last = request->last()](
          const Job& job, const Runner&, absl::Time lived, v1::ListRoundsResponse* rounds) {
        // Here, because the ages of rounds count from `lived`.
        const int64_t now = absl::ToUnixNanos(absl::Now());
        *rounds = RoundsOf(job, lane, last, lived);
        rounds->set_time_unix_ns(static_cast<uint64_t>(now));
        if (!lane.empty() && rounds->lanes_size() == 0) {
          return absl::NotFoundError(
              absl::StrCat("Job ", job.name, " has no lane ", QuoteForError(lane), "."));
        }
        return absl::OkStatus();
      }));
}

grpc::Status AdminService::ListShards(grpc::ServerContext* context,
                                      const v1::ListShardsRequest* request,
                                      v1::ListShardsResponse* response) {
  if (const absl::Status good = Begin(context, Rpc::kListShards, *request, ""); !good.ok())
    return ToGrpc(good);
  const absl::Status looked =
      LookFor(response, [](const Runner& runner, absl::Time now, v1::ListShardsResponse* shards) {
        *shards = ShardsOf(runner, now);
        return absl::OkStatus();
      });
  const Credentials caller = CallerOf(context);
  for (v1::ShardStatus& shard : *response->mutable_shards()) {
    if (shard.shard() == kCoordinatorShard) shard.set_up_ns(UptimeNanoseconds());
    auto& jobs = *shard.mutable_jobs();
    jobs.erase(std::remove_if(jobs.begin(), jobs.end(),
                              [&](const v1::ShardOfJob& job) {
                                return !MaySee(caller, Rpc::kListMembers, job.job());
                              }),
               jobs.end());
  }
  return ToGrpc(looked);
}

grpc::Status AdminService::GetLimits(grpc::ServerContext* context,
                                     const v1::GetLimitsRequest* request,
                                     v1::LimitsResponse* response) {
  if (const absl::Status good = Begin(context, Rpc::kGetLimits, *request, ""); !good.ok())
    return ToGrpc(good);
  const auto loop = std::make_shared<LoopMemory>();
  const absl::Status looked =
      LookFor(response, [loop](const Runner& runner, absl::Time now, v1::LimitsResponse* limits) {
        *loop = LookAtMemory(runner);
        const Coordinator& core = runner.core();
        const Config& config = core.config();
        *limits->add_limits() =
            LimitOf("memory.budget", config.memory_bytes, core.reserved_bytes(), "bytes");
        *limits->add_limits() = LimitOf("limits.jobs", config.max_jobs, core.jobs().size(), "jobs");
        AddTeams(core, *limits);
        for (const auto& [id, job] : core.jobs()) {
          *limits->add_limits() = LimitOf("memory.budget", config.memory_bytes,
                                          job.reserved_bytes(), "bytes", job.name);
          const uint64_t workers = job.workers.size() - job.workers.Count(WorkerState::kLost);
          *limits->add_limits() =
              LimitOf("limits.workers", config.max_workers, workers, "workers", job.name);
          if (config.max_job_bytes != 0) {
            *limits->add_limits() = LimitOf("limits.job_memory", config.max_job_bytes,
                                            job.lane_bytes(), "bytes", job.name);
          }
          *limits->add_limits() =
              LimitOf("limits.lanes", config.max_lanes, job.lanes.InUse(), "lanes", job.name);
          if (config.max_job_rounds != 0) {
            *limits->add_limits() =
                LimitOf("limits.job_rounds", config.max_job_rounds,
                        job.pace.Used(core.Lived(now), config), "rounds per second", job.name);
          }
        }
        return absl::OkStatus();
      });
  const Credentials caller = CallerOf(context);
  auto& limits = *response->mutable_limits();
  limits.erase(std::remove_if(limits.begin(), limits.end(),
                              [&](const v1::Limit& limit) {
                                return !limit.job().empty() &&
                                       !MaySee(caller, Rpc::kListMembers, limit.job());
                              }),
               limits.end());
  if (looked.ok() && options_.memory_use != nullptr) {
    for (const MemoryUse& use : options_.memory_use(*loop)) {
      v1::MemoryUse* const shown = response->add_memory();
      shown->set_kind(use.kind);
      shown->set_bytes(use.bytes);
    }
  }
  return ToGrpc(looked);
}

grpc::Status AdminService::Dump(grpc::ServerContext* context, const v1::DumpRequest* request,
                                v1::DumpResponse* response) {
  if (const absl::Status good = Begin(context, Rpc::kDump, *request, request->job()); !good.ok())
    return ToGrpc(good);
  return ToGrpc(
      LookFor(response, [job = request->job(), why_not = NoSuchJob(request->job())](
                            const Runner& runner, absl::Time now, v1::DumpResponse* dump) {
        const Coordinator& core = runner.core();
        if (!job.empty() && core.FindJob(job) == nullptr) return why_not;
        dump->set_text(basin::aggregator::Dump(core, job, core.Lived(now)));
        return absl::OkStatus();
      }));
}

// ---- events

// Waits until something happened after that event, or for a moment. False: the call is over.
bool AdminService::WaitForNews(uint64_t after) {
  const auto until = std::chrono::steady_clock::now() + kLookAtCaller;
  MutexLock lock(mutex_);
  if (!stopped_ && events_.After(after, 1).empty()) news_.WaitUntil(mutex_, until);
  return !stopped_;
}

absl::Status AdminService::BeginWatching(const Caller& caller) {
  MutexLock lock(mutex_);
  const auto of_grant = watchers_of_.find(caller.grant);
  if (!caller.grant.empty() && of_grant != watchers_of_.end() &&
      of_grant->second >= kMostWatchersOfAGrant) {
    return absl::ResourceExhaustedError(
        absl::StrCat(caller.grant, " has ", kMostWatchersOfAGrant,
                     " watchers of events, which is the limit of one grant; end one."));
  }
  const int most = caller.for_all ? kMostWatchers : kMostWatchers - kWatchersOfOperators;
  if (watchers_ >= most) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "The aggregator has ", watchers_, " watchers of events, and its limit is ", most,
        caller.for_all ? "" : " for all but administrators of the jobs *", "; end one."));
  }
  ++watchers_;
  ++watchers_of_[caller.grant];
  return absl::OkStatus();
}

grpc::Status AdminService::WatchEvents(grpc::ServerContext* context,
                                       const v1::WatchEventsRequest* request,
                                       grpc::ServerWriter<v1::Event>* writer) {
  Caller watcher;
  absl::Status good = Begin(context, Rpc::kWatchEvents, *request, request->job(), &watcher);
  if (good.ok()) good = BeginWatching(watcher);
  if (!good.ok()) return ToGrpc(good);
  // Sends the number of the last matching event to a caller that does not wait for new ones.
  context->AddInitialMetadata(kLastEventMetadata, absl::StrCat(events_.Last(request->job())));
  writer->SendInitialMetadata();
  const uint64_t subscription = events_.Subscribe([this] { news_.NotifyAll(); });
  uint64_t after = request->after();
  const Credentials caller = CallerOf(context);
  bool caller_there = true;
  bool revoked = false;
  while (caller_there && !context->IsCancelled()) {
    revoked = !MaySee(caller, Rpc::kWatchEvents, request->job());
    if (revoked) break;
    const std::vector<RememberedEvent> events = events_.After(after, kEventsAtOnce);
    // One clock for all: the newest is new.
    const absl::Time now = events.empty() ? absl::Time() : events.back().time;
    for (const RememberedEvent& event : events) {
      after = event.sequence;
      if (!request->job().empty() && event.note.job != request->job()) continue;
      caller_there = caller_there && writer->Write(ViewOf(event, engine_.term(), now));
    }
    if (events.empty() && !WaitForNews(after)) break;
  }
  events_.Unsubscribe(subscription);
  MutexLock lock(mutex_);
  --watchers_;
  const auto of_grant = watchers_of_.find(watcher.grant);
  if (--of_grant->second == 0) watchers_of_.erase(of_grant);
  if (revoked) {
    return ToGrpc(absl::UnauthenticatedError(
        "The token or certificate is not valid here any more. Ask the operator of the aggregator "
        "for a valid one."));
  }
  return stopped_ ? ToGrpc(absl::UnavailableError("The aggregator stops.")) : grpc::Status::OK;
}

// ---- commands

grpc::Status AdminService::DrainWorker(grpc::ServerContext* context,
                                       const v1::DrainWorkerRequest* request,
                                       v1::ChangeResponse* response) {
  Caller caller;
  absl::Status good = Begin(context, Rpc::kDrainWorker, *request, request->job(), &caller);
  if (good.ok()) good = FindWorker(request->job(), request->worker());
  if (!good.ok()) return ToGrpc(good);
  const absl::Status done =
      Do(basin::aggregator::DrainWorker{request->job(), request->worker()},
         absl::StrCat("Worker ", request->worker(), " of job ", request->job(),
                      " is draining: its open rounds end normally, and the next "
                      "generation does not include it."),
         response);
  return Changed(caller, request->job(), done, *response);
}

grpc::Status AdminService::DrainService(grpc::ServerContext* context,
                                        const v1::DrainServiceRequest* request,
                                        v1::ChangeResponse* response) {
  Caller caller;
  if (const absl::Status good = Begin(context, Rpc::kDrainService, *request, "", &caller);
      !good.ok())
    return ToGrpc(good);
  options_.end();
  response->set_text(
      "The aggregator drains: it admits no more workers, open rounds end within drain.grace, then "
      "all sessions end.");
  return Changed(caller, "", absl::OkStatus(), *response);
}

grpc::Status AdminService::StepDown(grpc::ServerContext* context,
                                    const v1::StepDownRequest* request,
                                    v1::ChangeResponse* response) {
  Caller caller;
  if (const absl::Status good = Begin(context, Rpc::kStepDown, *request, "", &caller); !good.ok())
    return ToGrpc(good);
  if (options_.step_down == nullptr) {
    return ToGrpc(absl::FailedPreconditionError(
        "standby.authority of this aggregator is none, so no other one can take over. Set it for "
        "this one and for a standby, or drain this one (`basinctl drain service`)."));
  }
  const absl::Status done = options_.step_down();
  response->set_text(
      "The aggregator has given up the lead: its rounds have ended, and a standby takes over.");
  return Changed(caller, "", done, *response);
}

grpc::Status AdminService::Evict(grpc::ServerContext* context, const v1::EvictRequest* request,
                                 v1::ChangeResponse* response) {
  Caller caller;
  absl::Status good = Begin(context, Rpc::kEvict, *request, request->job(), &caller);
  if (good.ok()) good = FindWorker(request->job(), request->worker());
  if (!good.ok()) return ToGrpc(good);
  const std::string reason =
      request->reason().empty()
          ? absl::StrCat("by ", caller.grant.empty() ? "an operator" : caller.grant)
          : PrintableText(request->reason(), kMaxTextBytes / 2);
  const absl::Status done =
      Do(EvictWorker{request->job(), request->worker(), reason},
         absl::StrCat("Worker ", request->worker(), " of job ", request->job(),
                      " is evicted; it can rejoin with state."),
         response);
  return Changed(caller, request->job(), done, *response);
}

grpc::Status AdminService::Pause(grpc::ServerContext* context, const v1::PauseRequest* request,
                                 v1::ChangeResponse* response) {
  Caller caller;
  absl::Status good = Begin(context, Rpc::kPause, *request, request->job(), &caller);
  const auto exists = [](const Job&, const Runner&, absl::Time, v1::ChangeResponse*) {
    return absl::OkStatus();
  };
  if (good.ok()) good = LookAtJob(request->job(), response, exists);
  if (!good.ok()) return ToGrpc(good);
  const absl::Status done =
      Do(SuspendJob{request->job()},
         absl::StrCat("Job ", request->job(), " is suspended until it is resumed."), response);
  return Changed(caller, request->job(), done, *response);
}

grpc::Status AdminService::Resume(grpc::ServerContext* context, const v1::ResumeRequest* request,
                                  v1::ChangeResponse* response) {
  Caller caller;
  absl::Status good = Begin(context, Rpc::kResume, *request, request->job(), &caller);
  const auto exists = [](const Job&, const Runner&, absl::Time, v1::ChangeResponse*) {
    return absl::OkStatus();
  };
  if (good.ok()) good = LookAtJob(request->job(), response, exists);
  if (!good.ok()) return ToGrpc(good);
  const absl::Status done =
      Do(ResumeJob{request->job()}, absl::StrCat("Job ", request->job(), " continues."), response);
  return Changed(caller, request->job(), done, *response);
}

grpc::Status AdminService::SetJob(grpc::ServerContext* context, const v1::SetJobRequest* request,
                                  v1::ChangeResponse* response) {
  Caller caller;
  if (const absl::Status good = Begin(context, Rpc::kSetJob, *request, request->job(), &caller);
      !good.ok())
    return ToGrpc(good);
  const basin::aggregator::SetJob set = SettingsIn(*request);
  engine_.Command(set);
  // The core has taken the command, and the state file has it. A second attempt gives the same
  // answer: it sets what is set, or refuses again.
  const auto look = [set, why_not = NoSuchJob(set.job)](const Runner& runner, absl::Time now,
                                                        v1::ChangeResponse* done) {
    const Coordinator& core = runner.core();
    const Job* job = core.FindJob(set.job);
    if (job == nullptr) return why_not;
    const std::string why =
        WhyNotSet(*job, core.config(), core.config().memory_bytes - core.reserved_bytes(), set);
    if (!why.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("Job ", set.job, " cannot be set: ", why, "."));
    }
    const v1::JobStatus status = ViewOf(*job, core, core.Lived(now));
    done->set_text(absl::StrCat(
        "Job ", set.job, " has min_workers = ", status.settings().min_workers(),
        ", max_workers = ", status.settings().max_workers(),
        ", loss_policy = ", status.loss_policy() == v1::LOSS_POLICY_ABORT ? "abort" : "shrink",
        ", late_policy = ", NameOf(job->late_policy(core.config())), ", ", job->HowLongSet(), "."));
    return absl::OkStatus();
  };
  absl::Status answer = LookFor(response, look, &Engine::InspectWritten);
  if (!absl::IsDeadlineExceeded(answer)) {
    return Changed(caller, request->job(), answer, *response);
  }
  // The disk hangs, or the loop does.
  answer = LookFor(response, look);
  if (!Changed(caller, request->job(), answer, *response).ok()) return ToGrpc(answer);
  return ToGrpc(absl::DeadlineExceededError(
      absl::StrCat("Job ", set.job,
                   " is set, and the change is in force, but the state file is not written yet: "
                   "its disk may hang. Until it is written, a restart of the aggregator undoes the "
                   "change. The same call says later how long it holds.")));
}

grpc::Status AdminService::Recover(grpc::ServerContext* context, const v1::RecoverRequest* request,
                                   v1::ChangeResponse* response) {
  Caller caller;
  absl::Status good = Begin(context, Rpc::kRecover, *request, request->job(), &caller);
  const auto recovers = [](const Job& job, const Runner&, absl::Time, v1::ChangeResponse*) {
    if (job.state() == JobState::kHalted || job.state() == JobState::kRecovering) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "Job ", job.name, " is ", JobStateName(job.state()), ": there is nothing to recover."));
  };
  if (good.ok()) good = LookAtJob(request->job(), response, recovers);
  if (!good.ok()) return ToGrpc(good);
  const absl::Status done =
      Do(RecoverJob{request->job()},
         absl::StrCat("Job ", request->job(),
                      " continues with the workers that have returned; `basinctl events` "
                      "reports what was lost."),
         response);
  return Changed(caller, request->job(), done, *response);
}

grpc::Status AdminService::ReportExit(grpc::ServerContext* context,
                                      const v1::ReportExitRequest* request,
                                      v1::ChangeResponse* response) {
  absl::Status good = Begin(context, Rpc::kReportExit, *request, request->job());
  if (good.ok()) good = FindWorker(request->job(), request->worker());
  if (!good.ok()) return ToGrpc(good);
  engine_.Command(WorkerExited{request->job(), request->worker(), request->nonce()});
  // The loop takes one thing after the other. So a process that has replaced the one that is
  // reported is seen here, and it was not evicted.
  return ToGrpc(LookAtJob(
      request->job(), response,
      [worker = request->worker(), nonce = request->nonce()](const Job& job, const Runner&,
                                                             absl::Time, v1::ChangeResponse* done) {
        const std::optional<Slot> slot = job.workers.Find(worker);
        if (nonce != 0 && slot.has_value() && job.workers[*slot].nonce != nonce) {
          return absl::FailedPreconditionError(absl::StrCat(
              "Worker ", worker, " of job ", job.name, " has been replaced by a newer process."));
        }
        done->set_text(absl::StrCat("Worker ", worker, " of job ", job.name,
                                    " has exited; its lease ends now."));
        return absl::OkStatus();
      },
      &Engine::InspectInOrder));
}

}  // namespace basin::aggregator

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The handlers of basin.v1.Admin.
//
// Thread contract: gRPC's synchronous threads, one per call; operators are few.
// Failure: as in basin/v1/admin.proto. DEADLINE_EXCEEDED when the event loop does not answer.

#ifndef BASIN_AGGREGATOR_ADMIN_ADMIN_SERVICE_H_
#define BASIN_AGGREGATOR_ADMIN_ADMIN_SERVICE_H_

#include <chrono>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "aggregator/admin/admin_server.h"
#include "aggregator/engine/engine.h"
#include "aggregator/telemetry/ask.h"
#include "aggregator/telemetry/events.h"
#include "aggregator/transport/newcomers.h"
#include "basin/v1/admin.grpc.pb.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class AdminService : public v1::Admin::Service {
 public:
  // REQUIRES: all outlive the service.
  AdminService(AdminOptions options, Engine& engine, EventHistory& events, Newcomers& newcomers);

  // Calls that wait for news end.
  void Stop();

  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::ServiceStatus* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status ListMembers(grpc::ServerContext* context, const v1::ListMembersRequest* request,
                           v1::ListMembersResponse* response) override;
  grpc::Status ListRounds(grpc::ServerContext* context, const v1::ListRoundsRequest* request,
                          v1::ListRoundsResponse* response) override;
  grpc::Status ListShards(grpc::ServerContext* context, const v1::ListShardsRequest* request,
                          v1::ListShardsResponse* response) override;
  grpc::Status WatchEvents(grpc::ServerContext* context, const v1::WatchEventsRequest* request,
                           grpc::ServerWriter<v1::Event>* writer) override;
  grpc::Status GetLimits(grpc::ServerContext* context, const v1::GetLimitsRequest* request,
                         v1::LimitsResponse* response) override;

  grpc::Status Dump(grpc::ServerContext* context, const v1::DumpRequest* request,
                    v1::DumpResponse* response) override;

  grpc::Status DrainWorker(grpc::ServerContext* context, const v1::DrainWorkerRequest* request,
                           v1::ChangeResponse* response) override;
  grpc::Status DrainService(grpc::ServerContext* context, const v1::DrainServiceRequest* request,
                            v1::ChangeResponse* response) override;
  grpc::Status StepDown(grpc::ServerContext* context, const v1::StepDownRequest* request,
                        v1::ChangeResponse* response) override;
  grpc::Status Evict(grpc::ServerContext* context, const v1::EvictRequest* request,
                     v1::ChangeResponse* response) override;
  grpc::Status Pause(grpc::ServerContext* context, const v1::PauseRequest* request,
                     v1::ChangeResponse* response) override;
  grpc::Status Resume(grpc::ServerContext* context, const v1::ResumeRequest* request,
                      v1::ChangeResponse* response) override;
  grpc::Status SetJob(grpc::ServerContext* context, const v1::SetJobRequest* request,
                      v1::ChangeResponse* response) override;
  grpc::Status Recover(grpc::ServerContext* context, const v1::RecoverRequest* request,
                       v1::ChangeResponse* response) override;
  grpc::Status ReportExit(grpc::ServerContext* context, const v1::ReportExitRequest* request,
                          v1::ChangeResponse* response) override;

 private:
  // The caller of an RPC, as far as the grants tell.
  struct Caller {
    std::string address;
    std::string grant;     // Empty without auth.file.
    bool for_all = false;  // An administrator of all jobs; everybody without auth.file.

    // For the log.
    std::string InWords() const;
  };

  static Credentials CallerOf(const grpc::ServerContext* context);
  uint64_t UptimeNanoseconds() const;
  // Whether an answer about all jobs may contain this one.
  bool MaySee(const Credentials& caller, Rpc rpc, const std::string& job) const;
  // Whether the caller may make this call, and whether it is a valid one. `job`: empty if it is
  // about no single job. `caller`: filled in if it may.
  template <typename Request>
  absl::Status Begin(const grpc::ServerContext* context, Rpc rpc, const Request& request,
                     const std::string& job, Caller* caller = nullptr);
  // Fills `response` from the loop. `look(runner, now, response)` returns a status.
  template <typename Response, typename Look>
  absl::Status LookFor(Response* response, Look look, Inspection inspect = &Engine::Inspect);
  // Why there is no such job here.
  absl::Status NoSuchJob(const std::string& job) const;
  // The same with the job as the first argument of `look`, or NoSuchJob.
  template <typename Response, typename Look>
  absl::Status LookAtJob(const std::string& job, Response* response, Look look,
                         Inspection inspect = &Engine::Inspect);
  absl::Status FindWorker(const std::string& job, const std::string& worker);
  // Hands the command over and returns when the core has taken it.
  absl::Status Do(Event command, const std::string& text, v1::ChangeResponse* response);
  // Logs what an operator has changed.
  grpc::Status Changed(const Caller& caller, const std::string& job, const absl::Status& done,
                       const v1::ChangeResponse& response) const;
  // Counts a watcher of events, or says why there may not be another one.
  absl::Status BeginWatching(const Caller& caller);
  bool WaitForNews(uint64_t after);

  // Constant after construction.
  const AdminOptions options_;
  Engine& engine_;
  EventHistory& events_;
  Newcomers& newcomers_;
  const std::chrono::steady_clock::time_point started_;

  Mutex mutex_;
  Condition news_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int watchers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> watchers_of_ ABSL_GUARDED_BY(mutex_);  // By grant; none has 0.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ADMIN_ADMIN_SERVICE_H_

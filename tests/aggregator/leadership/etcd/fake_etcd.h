// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A cluster of etcd that keeps one key in memory, over gRPC on this host: it compares revisions and
// values, and checks the token of a login. A test decides what goes wrong at which member, and
// reads what was asked.
//
// Thread contract: safe from any thread, except that Start and Stop are for one thread.

#ifndef BASIN_TESTS_AGGREGATOR_LEADERSHIP_ETCD_FAKE_ETCD_H_
#define BASIN_TESTS_AGGREGATOR_LEADERSHIP_ETCD_FAKE_ETCD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aggregator/leadership/etcd/etcd_client.h"
#include "etcd/v3/rpc.grpc.pb.h"
#include "grpcpp/server.h"
#include "runtime/grpc/credentials.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

// What becomes of a request.
enum class EtcdFate : uint8_t {
  kWell,
  kForbidden,   // PERMISSION_DENIED, and nothing is done.
  kNoLeader,    // UNAVAILABLE, and nothing is done.
  kTimedOut,    // UNAVAILABLE, and it is done: the member did not hear of that in time.
  kSilent,      // No answer, and nothing is done.
  kAnswerLost,  // It is done, and no answer comes.
  kLate,        // It is done, and the answer comes a moment later.
};
inline constexpr uint64_t kEtcdFates = 7;

class FakeEtcd {
 public:
  struct Options {
    size_t members = 1;
    ServerTls tls;
    // Whoever asks must have logged in with these; empty: anybody may ask.
    std::string user;
    std::string password;
  };

  explicit FakeEtcd(Options options);
  FakeEtcd() : FakeEtcd(Options()) {}
  ~FakeEtcd();
  FakeEtcd(const FakeEtcd&) = delete;
  FakeEtcd& operator=(const FakeEtcd&) = delete;

  std::vector<std::string> endpoints() const;
  EtcdPlace place() const { return {endpoints(), {}, ""}; }

  // A member that is stopped refuses connections.
  void Stop(size_t member);
  void Start(size_t member);

  // The fate of each request from now on; null: all go well. Called with a lock.
  void Decide(std::function<EtcdFate(size_t member)> fate);
  // The fate of the next request alone.
  void DecideNext(EtcdFate fate);

  // Somebody else writes, or deletes.
  void Put(const std::string& value);
  void Delete();
  // The data is that of an earlier time: the revisions from then on come again.
  struct Data {
    std::optional<EtcdValue> value;
    int64_t revision = 1;
  };
  Data Backup() const;
  void Restore(const Data& data);
  // Its tokens are gone, as after a start.
  void ForgetTokens();
  // The member belongs to another cluster from now on.
  void MoveToCluster(size_t member, uint64_t cluster);

  std::optional<std::string> value() const;
  // "0 Range", "1 Txn", "0 Authenticate": the member and the method, in order.
  std::vector<std::string> Asked() const;

 private:
  class Member;

  const Options options_;
  std::vector<std::unique_ptr<Member>> members_;

  mutable Mutex mutex_;
  Condition changed_;
  std::function<EtcdFate(size_t)> fate_ ABSL_GUARDED_BY(mutex_);
  std::deque<EtcdFate> next_ ABSL_GUARDED_BY(mutex_);
  Data data_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> tokens_ ABSL_GUARDED_BY(mutex_);
  uint64_t logins_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> asked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_LEADERSHIP_ETCD_FAKE_ETCD_H_

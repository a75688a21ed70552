// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// An API server of Kubernetes that keeps Leases in memory, over HTTPS on this host: it compares
// resourceVersions and checks the token. A test decides what goes wrong, and reads what was asked.
//
// Thread contract: safe from any thread; requests are answered on a thread of its own.

#ifndef BASIN_TESTS_AGGREGATOR_LEADERSHIP_KUBERNETES_FAKE_API_SERVER_H_
#define BASIN_TESTS_AGGREGATOR_LEADERSHIP_KUBERNETES_FAKE_API_SERVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "aggregator/http/libevent.h"
#include "aggregator/leadership/kubernetes/kubernetes_authority.h"
#include "aggregator/tls/sessions.h"
#include "runtime/mutex.h"
#include "tests/aggregator/tls/pki.h"

namespace basin::aggregator {

// What becomes of a request.
enum class ApiFate : uint8_t {
  kWell,
  kForbidden,        // 403, and nothing is done.
  kBroken,           // 500, and nothing is done.
  kSilent,           // No answer, and nothing is done.
  kHungUp,           // The connection is closed, and nothing is done.
  kAnswerLost,       // It is done, and the connection is closed before the answer.
  kNonsense,         // It is done, and the answer is no object.
  kClosedAfterwards  // It is done and answered, and the connection is closed.
};
inline constexpr uint64_t kApiFates = 8;

class FakeApiServer {
 public:
  // `names`: those in its certificate, in OpenSSL's form.
  explicit FakeApiServer(std::vector<std::string> names = {"IP:127.0.0.1"});
  ~FakeApiServer();
  FakeApiServer(const FakeApiServer&) = delete;
  FakeApiServer& operator=(const FakeApiServer&) = delete;

  // For a pod whose service account has the present token.
  KubernetesPlace place() const { return {{"127.0.0.1", port_}, pki_.path("")}; }
  const Pki& pki() const { return pki_; }

  // Writes another token for the pod, and takes only that one from now on.
  void ReplaceToken(const std::string& token);
  // The fate of each request from now on; null: all go well.
  void Decide(std::function<ApiFate()> fate);
  // The fate of the next request alone.
  void DecideNext(ApiFate fate);

  // The Lease; null if there is none.
  nlohmann::json Lease(const std::string& space, const std::string& name) const;
  // Somebody else writes, or deletes if it is null.
  void Put(const std::string& space, const std::string& name, nlohmann::json lease);

  // "GET /apis/...", in order.
  std::vector<std::string> Asked() const;
  uint64_t connections() const;

 private:
  struct Answer {
    int code = 0;
    nlohmann::json body;
  };

  static std::string PathOf(const std::string& space, const std::string& name);
  void Serve(evhttp_request* request);
  Answer Do(const std::string& method, const std::string& path, const std::string& body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer Store(const std::string& path, nlohmann::json lease, int code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Pki pki_;
  std::unique_ptr<TlsSessions> tls_;
  uint16_t port_ = 0;

  mutable Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  std::function<ApiFate()> fate_ ABSL_GUARDED_BY(mutex_);
  std::deque<ApiFate> next_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, nlohmann::json> leases_ ABSL_GUARDED_BY(mutex_);  // By path.
  uint64_t versions_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> asked_ ABSL_GUARDED_BY(mutex_);
  uint64_t connections_ ABSL_GUARDED_BY(mutex_) = 0;

  int wake_ = -1;
  BasePtr base_;
  TimerPtr woken_;
  EventPtr<evhttp, evhttp_free> http_;
  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_LEADERSHIP_KUBERNETES_FAKE_API_SERVER_H_

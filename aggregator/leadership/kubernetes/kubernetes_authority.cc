// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/kubernetes/kubernetes_authority.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "aggregator/leadership/kubernetes/lease.h"
#include "runtime/text_file.h"

namespace basin::aggregator {
namespace {

constexpr char kLeases[] = "/apis/coordination.k8s.io/v1/namespaces/";

constexpr int kOk = 200;
constexpr int kCreated = 201;
constexpr int kUnauthorized = 401;
constexpr int kForbidden = 403;
constexpr int kNotFound = 404;
constexpr int kConflict = 409;

// What the server says about a request that it did not carry out.
std::string MessageIn(const std::string& body) {
  const auto status = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!status.is_object()) return "";
  const auto message = status.find("message");
  if (message == status.end() || !message->is_string()) return "";
  return absl::StrCat(": ", std::string(absl::StripSuffix(message->get<std::string>(), ".")));
}

absl::StatusOr<std::string> ReadWord(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", text.status().message()));
  }
  return std::string(absl::StripAsciiWhitespace(*text));
}

}  // namespace

absl::StatusOr<std::unique_ptr<KubernetesAuthority>> KubernetesAuthority::Open(
    const KubernetesPlace& place, std::string space, const std::string& name) {
  constexpr char kWayOut[] =
      ". standby.authority kubernetes: is for pods of Kubernetes, whose service account needs its "
      "token in the pod (automountServiceAccountToken: true). Elsewhere use file:DIRECTORY.";
  if (place.server.host.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("There is no API server: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT "
                     "are not set",
                     kWayOut));
  }
  for (const char* file : {"token", "ca.crt"}) {
    const absl::StatusOr<std::string> read = ReadWord(absl::StrCat(place.account, "/", file));
    if (!read.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(read.status().message(), kWayOut));
    }
  }
  if (space.empty()) {
    absl::StatusOr<std::string> own = ReadWord(place.account + "/namespace");
    if (!own.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(own.status().message(), kWayOut));
    }
    space = *std::move(own);
  }
  return std::unique_ptr<KubernetesAuthority>(new KubernetesAuthority(place, space, name));
}

KubernetesAuthority::KubernetesAuthority(const KubernetesPlace& place, const std::string& space,
                                         const std::string& name)
    : place_(place),
      name_(absl::StrCat("the Lease ", space, "/", name, " of standby.authority")),
      path_(absl::StrCat(kLeases, space, "/leases/", name)),
      all_(absl::StrCat(kLeases, space, "/leases")),
      new_lease_(NewLease(space, name)),
      client_(place.server, place.account + "/ca.crt") {}

absl::StatusOr<RecordState> KubernetesAuthority::Read(absl::Duration timeout) {
  absl::StatusOr<HttpPage> answer = Ask({HttpsRequest::Method::kGet, path_, {}, ""}, timeout);
  if (!answer.ok()) return answer.status();
  if (answer->status == kNotFound) {
    lease_.clear();
    return RecordState();
  }
  if (answer->status != kOk) return Refused(*answer);
  absl::StatusOr<RecordState> state = StateInLease(answer->body);
  if (!state.ok()) return Trouble(std::string(state.status().message()));
  lease_ = std::move(answer->body);
  return state;
}

absl::StatusOr<std::string> KubernetesAuthority::Write(const LeaderRecord& record,
                                                       const std::string& version,
                                                       absl::Duration timeout) {
  const bool is_new = version.empty();
  const absl::Status changed = absl::AbortedError("The Lease has changed.");
  // What was read last was not this version.
  if (is_new != lease_.empty()) return changed;
  absl::StatusOr<std::string> lease =
      LeaseWith(record, version, is_new ? new_lease_ : lease_, absl::Now());
  if (!lease.ok()) return Trouble(std::string(lease.status().message()));
  HttpsRequest request;
  request.method = is_new ? HttpsRequest::Method::kPost : HttpsRequest::Method::kPut;
  request.path = is_new ? all_ : path_;
  request.headers = {{"Content-Type", "application/json"}};
  request.body = *std::move(lease);
  absl::StatusOr<HttpPage> answer = Ask(std::move(request), timeout);
  if (!answer.ok()) return answer.status();
  if (answer->status == kConflict) return changed;
  if (answer->status == kNotFound && !is_new) return changed;
  if (answer->status != kOk && answer->status != kCreated) return Refused(*answer);
  absl::StatusOr<RecordState> state = StateInLease(answer->body);
  if (!state.ok()) return Trouble(std::string(state.status().message()));
  lease_ = std::move(answer->body);
  return std::move(state->version);
}

absl::StatusOr<HttpPage> KubernetesAuthority::Ask(HttpsRequest request, absl::Duration timeout) {
  const absl::StatusOr<std::string> token = ReadWord(place_.account + "/token");
  if (!token.ok()) return Trouble(std::string(token.status().message()));
  request.headers.emplace_back("Authorization", "Bearer " + *token);
  request.headers.emplace_back("Accept", "application/json");
  request.headers.emplace_back("User-Agent", "basind");
  absl::StatusOr<HttpPage> answer = client_.Ask(request, timeout);
  if (!answer.ok()) {
    return Trouble(absl::StrCat("the API server at ", ToString(place_.server), ": ",
                                answer.status().message()));
  }
  return answer;
}

absl::Status KubernetesAuthority::Refused(const HttpPage& answer) const {
  std::string what =
      absl::StrCat("the API server answers with status ", answer.status, MessageIn(answer.body));
  if (answer.status == kForbidden || answer.status == kUnauthorized) {
    absl::StrAppend(&what,
                    ". The service account of this pod needs the verbs get and update for this "
                    "Lease, and create for leases where it does not exist yet");
  }
  return Trouble(what);
}

absl::Status KubernetesAuthority::Trouble(const std::string& what) const {
  return absl::UnavailableError(absl::StrCat(name_, " cannot be used: ", what));
}

}  // namespace basin::aggregator

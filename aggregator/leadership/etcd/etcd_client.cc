// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/etcd/etcd_client.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "etcd/v3/rpc.grpc.pb.h"
#include "grpc/support/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "runtime/clock.h"
#include "runtime/text_file.h"

namespace basin::aggregator {
namespace {

namespace pb = etcdserverpb;

// As in etcd's own clients: the token of a login, and that a member which knows no leader of its
// cluster refuses at once instead of waiting for one.
constexpr char kTokenMetadata[] = "token";
constexpr char kHasLeaderMetadata[] = "hasleader";

// For a connection to come about, after which another one is tried.
constexpr int kConnectMilliseconds = 1000;

absl::Status Unusable(const char* option, const std::string& path, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(option, " is ", path, ": ", why));
}

absl::StatusOr<std::string> ReadPemFile(const char* option, const std::string& path,
                                        const char* fix) {
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) {
    return Unusable(option, path, absl::StrCat(text.status().message(), "; ", fix));
  }
  if (!absl::StrContains(*text, "-----BEGIN ")) {
    return Unusable(option, path, absl::StrCat("it is not a PEM file; ", fix));
  }
  return text;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(const ClientTls& tls) {
  if (!tls.on()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  struct Part {
    const char* option;
    const std::string& path;
    const char* fix;
    std::string& into;
  };
  const Part parts[] = {
      {"standby.etcd_ca", tls.ca, "name the file with the authority of etcd's certificates",
       options.pem_root_certs},
      {"standby.etcd_cert", tls.cert, "name the file with the certificate for etcd",
       options.pem_cert_chain},
      {"standby.etcd_key", tls.key, "name the file with the private key of standby.etcd_cert",
       options.pem_private_key}};
  for (const Part& part : parts) {
    if (part.path.empty()) continue;
    absl::StatusOr<std::string> pem = ReadPemFile(part.option, part.path, part.fix);
    if (!pem.ok()) return pem.status();
    part.into = *std::move(pem);
  }
  return grpc::SslCredentials(options);
}

absl::StatusOr<pb::AuthenticateRequest> ReadUser(const std::string& path) {
  constexpr char kOption[] = "standby.etcd_user_file";
  constexpr char kFix[] = "; write NAME:PASSWORD of a user of etcd into it";
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return Unusable(kOption, path, absl::StrCat(text.status().message(), kFix));
  const std::string line(absl::StripAsciiWhitespace(*text));
  const size_t colon = line.find(':');
  if (colon == 0 || colon == std::string::npos || colon + 1 == line.size() ||
      absl::StrContains(line, "\n")) {
    return Unusable(kOption, path, absl::StrCat("it does not have one user", kFix));
  }
  pb::AuthenticateRequest user;
  user.set_name(line.substr(0, colon));
  user.set_password(line.substr(colon + 1));
  return user;
}

std::shared_ptr<grpc::Channel> OpenChannelTo(
    const std::string& endpoint, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  // A new channel is a new connection, also to a member that failed a moment ago.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMilliseconds);
  // A proxy that the environment names is for the internet.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(endpoint, credentials, arguments);
}

// By a clock that does not jump.
gpr_timespec After(absl::Duration duration) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(absl::ToInt64Microseconds(duration), GPR_TIMESPAN));
}

// A login is needed, or another one: etcd forgets tokens when it starts again, and when users or
// roles have changed. The request was not carried out.
bool WantsLogin(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         absl::StrContains(status.error_message(), "invalid auth token") ||
         absl::StrContains(status.error_message(), "revision of auth store is old");
}

// A member that refuses what every other one would refuse, too, is not left.
bool IsRefusalOfAll(grpc::StatusCode code) {
  return code == grpc::StatusCode::INVALID_ARGUMENT ||
         code == grpc::StatusCode::PERMISSION_DENIED || code == grpc::StatusCode::UNAUTHENTICATED ||
         code == grpc::StatusCode::FAILED_PRECONDITION ||
         code == grpc::StatusCode::RESOURCE_EXHAUSTED;
}

// The same text each time that it happens, because a change of it is logged.
std::string Why(const grpc::Status& status) {
  std::string text = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "no answer came in time";
    case grpc::StatusCode::PERMISSION_DENIED:
      absl::StrAppend(&text,
                      ". The user of etcd needs a role with the permission readwrite for the key");
      break;
    case grpc::StatusCode::INVALID_ARGUMENT:
      if (absl::StrContains(text, "user name is empty")) {
        absl::StrAppend(&text,
                        ". etcd demands a user: set standby.etcd_user_file, or standby.etcd_cert "
                        "to a certificate whose common name is one");
      } else if (absl::StrContains(text, "authentication failed")) {
        absl::StrAppend(&text, ". Check the name and password in standby.etcd_user_file");
      }
      break;
    case grpc::StatusCode::UNIMPLEMENTED:
      absl::StrAppend(&text, ". It is no etcd with the API of version 3");
      break;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      absl::StrAppend(&text, ". If its space is used up: etcdctl compact, defrag, alarm disarm");
      break;
    default:
      break;
  }
  return text;
}

}  // namespace

absl::Status CheckEtcdPlace(const EtcdPlace& place) {
  if (const auto credentials = CredentialsFor(place.tls); !credentials.ok()) {
    return credentials.status();
  }
  if (place.user_path.empty()) return absl::OkStatus();
  return ReadUser(place.user_path).status();
}

// One member of the cluster, and the connection to it.
class EtcdClient::Member {
 public:
  static absl::StatusOr<std::unique_ptr<Member>> Open(const EtcdPlace& place,
                                                      const std::string& endpoint) {
    absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials =
        CredentialsFor(place.tls);
    if (!credentials.ok()) return credentials.status();
    return std::unique_ptr<Member>(
        new Member(OpenChannelTo(endpoint, *credentials), place.user_path));
  }

  template <typename Request, typename Response>
  using Method = grpc::Status (pb::KV::Stub::*)(grpc::ClientContext*, const Request&, Response*);

  // `timeout`: for a login, too, if one is needed.
  template <typename Request, typename Response>
  grpc::Status Ask(Method<Request, Response> method, const Request& request, Response& response,
                   absl::Duration timeout) {
    const gpr_timespec until = After(timeout);
    grpc::Status status = AskOnce(method, request, response, until);
    if (status.ok() || user_path_.empty() || !WantsLogin(status)) return status;
    token_.clear();
    return AskOnce(method, request, response, until);
  }

 private:
  Member(const std::shared_ptr<grpc::Channel>& channel, std::string user_path)
      : user_path_(std::move(user_path)),
        kv_(pb::KV::NewStub(channel)),
        auth_(pb::Auth::NewStub(channel)) {}

  template <typename Request, typename Response>
  grpc::Status AskOnce(Method<Request, Response> method, const Request& request, Response& response,
                       gpr_timespec until) {
    if (token_.empty() && !user_path_.empty()) {
      if (grpc::Status in = LogIn(until); !in.ok()) return in;
    }
    grpc::ClientContext context;
    Prepare(context, until);
    return ((*kv_).*method)(&context, request, &response);
  }

  void Prepare(grpc::ClientContext& context, gpr_timespec until) const {
    context.set_deadline(until);
    context.AddMetadata(kHasLeaderMetadata, "true");
    if (!token_.empty()) context.AddMetadata(kTokenMetadata, token_);
  }

  grpc::Status LogIn(gpr_timespec until) {
    const absl::StatusOr<pb::AuthenticateRequest> user = ReadUser(user_path_);
    if (!user.ok()) {
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                          std::string(user.status().message()));
    }
    grpc::ClientContext context;
    Prepare(context, until);
    pb::AuthenticateResponse response;
    grpc::Status status = auth_->Authenticate(&context, *user, &response);
    if (status.ok()) token_ = response.token();
    return status;
  }

  const std::string user_path_;
  const std::unique_ptr<pb::KV::Stub> kv_;
  const std::unique_ptr<pb::Auth::Stub> auth_;
  std::string token_;  // Empty: not logged in.
};

EtcdClient::EtcdClient(EtcdPlace place, std::string key)
    : place_(std::move(place)), key_(std::move(key)), members_(place_.endpoints.size()) {}

EtcdClient::~EtcdClient() = default;

template <typename Method, typename Request, typename Response>
absl::Status EtcdClient::Ask(size_t member, Method method, const Request& request,
                             Response& response, absl::Duration timeout) {
  const std::string& endpoint = place_.endpoints[member];
  const auto trouble = [&](const std::string& why) {
    return absl::UnavailableError(absl::StrCat(endpoint, ": ", why));
  };
  std::unique_ptr<Member>& connection = members_[member];
  if (connection == nullptr) {
    absl::StatusOr<std::unique_ptr<Member>> opened = Member::Open(place_, endpoint);
    if (!opened.ok()) return trouble(std::string(opened.status().message()));
    connection = *std::move(opened);
  }
  const grpc::Status status = connection->Ask(method, request, response, timeout);
  if (!status.ok()) {
    if (!IsRefusalOfAll(status.error_code())) Leave(member);
    return trouble(Why(status));
  }
  const uint64_t cluster = response.header().cluster_id();
  if (cluster_ == 0) {
    cluster_ = cluster;
    cluster_seen_at_ = endpoint;
  }
  if (cluster == cluster_) return absl::OkStatus();
  Leave(member);
  return trouble(absl::StrCat(
      "it belongs to the cluster ", absl::Hex(cluster), ", and ", cluster_seen_at_,
      " belonged to the cluster ", absl::Hex(cluster_),
      "; each would have a leader of its own. Name only members of one cluster in "
      "standby.authority; if the cluster was replaced, restart all aggregators of the group"));
}

void EtcdClient::Leave(size_t member) {
  members_[member] = nullptr;
  if (next_ == member) next_ = (member + 1) % members_.size();
}

absl::StatusOr<std::optional<EtcdValue>> EtcdClient::Get(absl::Duration timeout) {
  pb::RangeRequest request;
  request.set_key(key_);
  const MonotonicClock clock;
  const absl::Time until = clock.Now() + timeout;
  const size_t count = members_.size();
  const size_t first = next_;
  std::vector<std::string> troubles(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t member = (first + i) % count;
    // The last one gets what the others have left.
    const absl::Duration share = (until - clock.Now()) / static_cast<int64_t>(count - i);
    pb::RangeResponse response;
    const absl::Status asked = Ask(member, &pb::KV::Stub::Range, request, response, share);
    if (!asked.ok()) {
      troubles[member] = std::string(asked.message());
      continue;
    }
    next_ = member;
    if (response.kvs().empty()) return std::optional<EtcdValue>();
    const pb::KeyValue& found = response.kvs(0);
    return std::optional<EtcdValue>({found.value(), found.mod_revision()});
  }
  return absl::UnavailableError(absl::StrJoin(troubles, "; "));
}

absl::StatusOr<std::optional<EtcdValue>> EtcdClient::Replace(const std::optional<EtcdValue>& before,
                                                             const std::string& value,
                                                             absl::Duration timeout) {
  pb::TxnRequest request;
  pb::Compare& compare = *request.add_compare();
  compare.set_key(key_);
  compare.set_result(pb::Compare::EQUAL);
  if (before.has_value()) {
    compare.set_target(pb::Compare::MOD);
    compare.set_mod_revision(before->revision);
    // An etcd whose data is restored counts from an earlier revision again, so one revision may
    // have two values.
    pb::Compare& content = *request.add_compare();
    content.set_key(key_);
    content.set_result(pb::Compare::EQUAL);
    content.set_target(pb::Compare::VALUE);
    content.set_value(before->value);
  } else {
    compare.set_target(pb::Compare::CREATE);
    compare.set_create_revision(0);
  }
  pb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(key_);
  put.set_value(value);
  pb::TxnResponse response;
  const absl::Status asked = Ask(next_, &pb::KV::Stub::Txn, request, response, timeout);
  if (!asked.ok()) return asked;
  if (!response.succeeded()) return std::optional<EtcdValue>();
  return std::optional<EtcdValue>({value, response.header().revision()});
}

}  // namespace basin::aggregator

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/leadership/etcd/fake_etcd.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_context.h"
#include "gtest/gtest.h"
#include "runtime/text_file.h"

namespace basin::aggregator {
namespace {

namespace pb = etcdserverpb;

constexpr std::chrono::milliseconds kLateBy(20);

std::string TextOfFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const ServerTls& tls) {
  if (!tls.on()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs = {{TextOfFile(tls.key), TextOfFile(tls.cert)}};
  if (!tls.client_ca.empty()) {
    options.pem_root_certs = TextOfFile(tls.client_ca);
    options.client_certificate_request = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  return grpc::SslServerCredentials(options);
}

bool Holds(const pb::Compare& compare, const FakeEtcd::Data& data) {
  EXPECT_EQ(compare.result(), pb::Compare::EQUAL);
  const std::optional<EtcdValue>& now = data.value;
  switch (compare.target()) {
    case pb::Compare::CREATE:
      EXPECT_EQ(compare.create_revision(), 0);
      return !now.has_value();
    case pb::Compare::MOD:
      return compare.mod_revision() == (now.has_value() ? now->revision : 0);
    case pb::Compare::VALUE:
      return now.has_value() && now->value == compare.value();
    default:
      ADD_FAILURE() << "it does not compare this";
      return false;
  }
}

}  // namespace

// Its handlers run on threads of gRPC.
class FakeEtcd::Member : public pb::KV::Service, public pb::Auth::Service {
 public:
  Member(FakeEtcd& etcd, size_t number) : etcd_(etcd), number_(number) { Start(); }
  ~Member() override { Stop(); }

  void Start() {
    ending_ = false;
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), CredentialsOf(etcd_.options_.tls),
                             &port_);
    builder.RegisterService(static_cast<pb::KV::Service*>(this));
    builder.RegisterService(static_cast<pb::Auth::Service*>(this));
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void Stop() {
    if (server_ == nullptr) return;
    {
      MutexLock lock(etcd_.mutex_);
      ending_ = true;
      etcd_.changed_.NotifyAll();
    }
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  int port() const { return port_; }
  void set_cluster(uint64_t cluster) { cluster_ = cluster; }

  grpc::Status Range(grpc::ServerContext* context, const pb::RangeRequest* request,
                     pb::RangeResponse* response) override {
    return Serve(*context, "Range", [&](Data& data) {
      if (data.value.has_value()) {
        pb::KeyValue& found = *response->add_kvs();
        found.set_key(request->key());
        found.set_value(data.value->value);
        found.set_mod_revision(data.value->revision);
      }
      SetHeader(data, *response->mutable_header());
    });
  }

  grpc::Status Txn(grpc::ServerContext* context, const pb::TxnRequest* request,
                   pb::TxnResponse* response) override {
    return Serve(*context, "Txn", [&](Data& data) {
      const bool holds = std::all_of(request->compare().begin(), request->compare().end(),
                                     [&](const pb::Compare& each) { return Holds(each, data); });
      response->set_succeeded(holds);
      if (holds) data.value = {request->success(0).request_put().value(), ++data.revision};
      SetHeader(data, *response->mutable_header());
    });
  }

  grpc::Status Authenticate(grpc::ServerContext*, const pb::AuthenticateRequest* request,
                            pb::AuthenticateResponse* response) override {
    MutexLock lock(etcd_.mutex_);
    etcd_.asked_.push_back(absl::StrCat(number_, " Authenticate"));
    if (etcd_.options_.user.empty()) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "etcdserver: authentication is not enabled"};
    }
    if (request->name() != etcd_.options_.user || request->password() != etcd_.options_.password) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              "etcdserver: authentication failed, invalid user ID or password"};
    }
    const std::string token = absl::StrCat("token-", ++etcd_.logins_);
    etcd_.tokens_.insert(token);
    response->set_token(token);
    return grpc::Status::OK;
  }

 private:
  template <typename Do>
  grpc::Status Serve(grpc::ServerContext& context, const char* method, const Do& act) {
    MutexLock lock(etcd_.mutex_);
    etcd_.asked_.push_back(absl::StrCat(number_, " ", method));
    if (const grpc::Status allowed = Allows(context); !allowed.ok()) return allowed;
    switch (NextFate()) {
      case EtcdFate::kWell:
        act(etcd_.data_);
        return grpc::Status::OK;
      case EtcdFate::kForbidden:
        return {grpc::StatusCode::PERMISSION_DENIED, "etcdserver: permission denied"};
      case EtcdFate::kNoLeader:
        return {grpc::StatusCode::UNAVAILABLE, "etcdserver: no leader"};
      case EtcdFate::kTimedOut:
        act(etcd_.data_);
        return {grpc::StatusCode::UNAVAILABLE, "etcdserver: request timed out"};
      case EtcdFate::kSilent:
        break;
      case EtcdFate::kAnswerLost:
        act(etcd_.data_);
        break;
      case EtcdFate::kLate:
        act(etcd_.data_);
        Wait(context, kLateBy);
        return grpc::Status::OK;
    }
    Wait(context, std::chrono::hours(1));
    return grpc::Status::CANCELLED;
  }

  // Until whoever asked has stopped waiting, for so long at most. Others are served meanwhile.
  void Wait(const grpc::ServerContext& context, std::chrono::steady_clock::duration time)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(etcd_.mutex_) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (!context.IsCancelled() && !ending_ && std::chrono::steady_clock::now() < until) {
      etcd_.changed_.WaitUntil(etcd_.mutex_,
                               std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
    }
  }

  grpc::Status Allows(const grpc::ServerContext& context) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(etcd_.mutex_) {
    if (etcd_.options_.user.empty()) return grpc::Status::OK;
    const auto found = context.client_metadata().find("token");
    if (found == context.client_metadata().end()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "etcdserver: user name is empty"};
    }
    if (etcd_.tokens_.count(std::string(found->second.data(), found->second.size())) == 0) {
      return {grpc::StatusCode::UNAUTHENTICATED, "etcdserver: invalid auth token"};
    }
    return grpc::Status::OK;
  }

  EtcdFate NextFate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(etcd_.mutex_) {
    if (!etcd_.next_.empty()) {
      const EtcdFate fate = etcd_.next_.front();
      etcd_.next_.pop_front();
      return fate;
    }
    return etcd_.fate_ == nullptr ? EtcdFate::kWell : etcd_.fate_(number_);
  }

  void SetHeader(const Data& data, pb::ResponseHeader& header) const {
    header.set_cluster_id(cluster_);
    header.set_member_id(number_ + 1);
    header.set_revision(data.revision);
  }

  FakeEtcd& etcd_;
  const size_t number_;
  std::atomic<uint64_t> cluster_{0xc1};
  std::atomic<bool> ending_{false};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

FakeEtcd::FakeEtcd(Options options) : options_(std::move(options)) {
  for (size_t i = 0; i < options_.members; ++i) {
    members_.push_back(std::make_unique<Member>(*this, i));
  }
}

FakeEtcd::~FakeEtcd() = default;

std::vector<std::string> FakeEtcd::endpoints() const {
  std::vector<std::string> endpoints;
  for (const auto& member : members_) {
    endpoints.push_back(absl::StrCat("127.0.0.1:", member->port()));
  }
  return endpoints;
}

void FakeEtcd::Stop(size_t member) { members_[member]->Stop(); }
void FakeEtcd::Start(size_t member) { members_[member]->Start(); }

void FakeEtcd::Decide(std::function<EtcdFate(size_t member)> fate) {
  MutexLock lock(mutex_);
  fate_ = std::move(fate);
}

void FakeEtcd::DecideNext(EtcdFate fate) {
  MutexLock lock(mutex_);
  next_.push_back(fate);
}

void FakeEtcd::Put(const std::string& value) {
  MutexLock lock(mutex_);
  data_.value = {value, ++data_.revision};
}

void FakeEtcd::Delete() {
  MutexLock lock(mutex_);
  ++data_.revision;
  data_.value.reset();
}

FakeEtcd::Data FakeEtcd::Backup() const {
  MutexLock lock(mutex_);
  return data_;
}

void FakeEtcd::Restore(const Data& data) {
  MutexLock lock(mutex_);
  data_ = data;
}

void FakeEtcd::ForgetTokens() {
  MutexLock lock(mutex_);
  tokens_.clear();
}

void FakeEtcd::MoveToCluster(size_t member, uint64_t cluster) {
  members_[member]->set_cluster(cluster);
}

std::optional<std::string> FakeEtcd::value() const {
  MutexLock lock(mutex_);
  if (!data_.value.has_value()) return std::nullopt;
  return data_.value->value;
}

std::vector<std::string> FakeEtcd::Asked() const {
  MutexLock lock(mutex_);
  return asked_;
}

}  // namespace basin::aggregator

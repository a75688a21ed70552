// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/leadership/etcd/real_etcd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "etcd/v3/rpc.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/runtime/await.h"

namespace basin::aggregator {
namespace {

namespace pb = etcdserverpb;

// In the tools of scripts/setup.sh, or installed; empty: nowhere.
std::string FindEtcd() {
  std::vector<std::string> folders = {BASIN_TOOLS};
  if (const char* path = std::getenv("PATH"); path != nullptr) {
    for (const absl::string_view folder : absl::StrSplit(path, ':')) folders.emplace_back(folder);
  }
  for (const std::string& folder : folders) {
    const std::string program = folder + "/etcd";
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

// That nobody listens at now.
uint16_t FreePort() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(probe, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(probe);
  return ntohs(address.sin_port);
}

std::unique_ptr<pb::KV::Stub> StubOf(const EtcdPlace& place) {
  return pb::KV::NewStub(
      grpc::CreateChannel(place.endpoints[0], grpc::InsecureChannelCredentials()));
}

}  // namespace

RealEtcd::RealEtcd() : program_(FindEtcd()) {
  if (program_.empty()) {
    why_not_ = "there is no etcd in PATH or in " BASIN_TOOLS "; scripts/setup.sh gets one";
    return;
  }
  std::string name = testing::TempDir() + "etcd-XXXXXX";
  folder_ = mkdtemp(name.data());
  port_ = FreePort();
  peer_port_ = FreePort();
  Start();
}

RealEtcd::~RealEtcd() {
  Kill();
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

EtcdPlace RealEtcd::place() const { return {{absl::StrCat("127.0.0.1:", port_)}, {}, ""}; }

void RealEtcd::Start() {
  const std::string clients = absl::StrCat("http://127.0.0.1:", port_);
  const std::string peers = absl::StrCat("http://127.0.0.1:", peer_port_);
  std::vector<std::string> words = {
      program_, "--name=one", absl::StrCat("--data-dir=", folder_, "/data"), "--unsafe-no-fsync",
      "--log-level=error",
      // So that it elects itself at once.
      "--heartbeat-interval=10", "--election-timeout=100",
      absl::StrCat("--listen-client-urls=", clients),
      absl::StrCat("--advertise-client-urls=", clients), absl::StrCat("--listen-peer-urls=", peers),
      absl::StrCat("--initial-advertise-peer-urls=", peers),
      absl::StrCat("--initial-cluster=one=", peers)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string log = folder_ + "/log";
  process_ = fork();
  if (process_ == 0) {
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  Await([this] { return Answers(); });
}

void RealEtcd::Kill() {
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

bool RealEtcd::Answers() const {
  pb::RangeRequest request;
  request.set_key("/");
  pb::RangeResponse response;
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
  return StubOf(place())->Range(&context, request, &response).ok();
}

void RealEtcd::Delete(const std::string& key) {
  pb::DeleteRangeRequest request;
  request.set_key(key);
  pb::DeleteRangeResponse response;
  grpc::ClientContext context;
  const grpc::Status status = StubOf(place())->DeleteRange(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
}

}  // namespace basin::aggregator

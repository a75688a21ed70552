// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/await.h"

namespace basin {
namespace {

// A connection to this machine; by the kernel alone, whether or not it is taken.
int ConnectTo(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_GE(fd, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

struct Taken {
  std::atomic<int> count{0};
  void operator()(int fd) {
    close(fd);
    ++count;
  }
};

TEST(Listener, TakesConnectionsOfWhateverItIsGiven) {
  for (const char* address : {"127.0.0.1:0", "localhost:0", "0.0.0.0:0", "[::]:0"}) {
    std::atomic<uint64_t> failures{0};
    auto listener = Listener::Open(address, failures);
    ASSERT_TRUE(listener.ok()) << address << ": " << listener.status();
    EXPECT_GT((*listener)->port(), 0);
    Taken taken;
    (*listener)->Start([&taken](int fd) { taken(fd); });
    for (int i = 0; i < 3; ++i) close(ConnectTo((*listener)->port()));
    Await([&] { return taken.count == 3; });
    EXPECT_EQ(failures, 0u);
  }
}

TEST(Listener, SaysWhyItCannot) {
  std::atomic<uint64_t> failures{0};
  auto first = Listener::Open("127.0.0.1:0", failures);
  ASSERT_TRUE(first.ok());
  const std::string taken = absl::StrCat("127.0.0.1:", (*first)->port());
  EXPECT_THAT(std::string(Listener::Open(taken, failures).status().message()),
              testing::HasSubstr("in use"));
  for (const char* address : {"203.0.113.1:0", "127.0.0.1", "127.0.0.1:x"}) {
    EXPECT_EQ(Listener::Open(address, failures).status().code(), absl::StatusCode::kUnavailable)
        << address;
  }
}

// Meanwhile connections wait in the kernel, and the processor is free.
TEST(Listener, Fault_A10_GoesOnOnceThereAreFileDescriptors) {
  std::atomic<uint64_t> failures{0};
  auto listener = Listener::Open("127.0.0.1:0", failures);
  ASSERT_TRUE(listener.ok());
  Taken taken;
  (*listener)->Start([&taken](int fd) { taken(fd); });

  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 128;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::vector<int> fill;
  for (int fd = dup(connection); fd >= 0; fd = dup(connection)) fill.push_back(fd);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>((*listener)->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  Await([&] { return failures >= 3; });
  EXPECT_EQ(taken.count, 0);

  for (const int fd : fill) close(fd);
  Await([&] { return taken.count == 1; });
  close(connection);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// Workers may not take the last descriptors: a probe that finds none ends a healthy aggregator.
TEST(Listener, Fault_A10_LeavesDescriptorsToOthers) {
  constexpr uint32_t kKept = 24;
  std::atomic<uint64_t> failures{0};
  auto for_workers = Listener::Open("127.0.0.1:0", failures, kKept);
  std::atomic<uint64_t> other_failures{0};
  auto for_probes = Listener::Open("127.0.0.1:0", other_failures);
  ASSERT_TRUE(for_workers.ok() && for_probes.ok());
  Taken workers;
  Taken probes;
  std::atomic<int> began{0};
  std::atomic<int> ended{0};
  (*for_workers)
      ->Start([&](int fd) { workers(fd); }, [&](bool waits) { ++(waits ? began : ended); });
  (*for_probes)->Start([&](int fd) { probes(fd); });

  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 128;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const int worker = ConnectTo((*for_workers)->port());
  Await([&] { return workers.count == 1; });
  std::vector<int> fill;
  for (int fd = dup(worker); fd >= 0; fd = dup(worker)) {
    fill.push_back(fd);
    if (fd + kKept >= 128) break;
  }
  const int waiting = ConnectTo((*for_workers)->port());
  Await([&] { return failures >= 3; });
  const int probe = ConnectTo((*for_probes)->port());
  Await([&] { return probes.count == 1; });
  EXPECT_EQ(workers.count, 1);
  EXPECT_EQ(began, 1);
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(other_failures, 0u);

  for (const int fd : fill) close(fd);
  Await([&] { return workers.count == 2 && ended == 1; });
  for (const int fd : {worker, waiting, probe}) close(fd);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// A connection that was taken may need another descriptor later, which must not be a kept one.
TEST(Listener, Fault_A10_LeavesDescriptorsToWhatItHasTaken) {
  std::atomic<uint64_t> failures{0};
  auto listener = Listener::Open("127.0.0.1:0", failures, 1);
  ASSERT_TRUE(listener.ok());
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::atomic<size_t> promised{limit.rlim_cur};
  Taken taken;
  (*listener)->Start([&](int fd) { taken(fd); }, nullptr, [&]() -> size_t { return promised; });
  const int waiting = ConnectTo((*listener)->port());
  Await([&] { return failures >= 1; });
  EXPECT_EQ(taken.count, 0);
  promised = 0;
  Await([&] { return taken.count == 1; });
  close(waiting);
}

}  // namespace
}  // namespace basin

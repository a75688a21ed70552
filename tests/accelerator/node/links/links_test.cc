// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Ranks of a node that are objects of one process; one test has a process of its own.

#include "accelerator/node/links/links.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::accelerator::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LinksTest : public testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<Links> links;
    GroupMember self;
    std::vector<Event> events;
  };

  LinksTest() {
    std::string made = testing::TempDir() + "basin-links-XXXXXX";
    EXPECT_NE(mkdtemp(made.data()), nullptr);
    directory_ = made + "/group";
  }
  ~LinksTest() override {
    ranks_ = {};
    rmdir(directory_.c_str());
    rmdir(directory_.substr(0, directory_.rfind('/')).c_str());
  }

  LinksOptions OptionsOf(LocalRank rank) {
    const GroupMember self = {rank, absl::StrCat("w", rank), ++nonces_};
    return {directory_, self, kSize, [self] {
              return Hello{self, {{"BASIN_JOB", "j"}}, 5, false};
            }};
  }
  void Start(LocalRank rank) {
    Rank& at = At(rank);
    at = Rank();
    LinksOptions options = OptionsOf(rank);
    at.self = options.self;
    auto links = Links::Open(std::move(options));
    ASSERT_TRUE(links.ok()) << links.status();
    at.links = std::move(*links);
  }
  Rank& At(LocalRank rank) { return ranks_[static_cast<size_t>(rank)]; }

  // Runs all ranks until nothing comes any more.
  void RunUntilQuiet() {
    // A knock, a connection and two hellos need some turns without an event.
    for (int quiet = 0; quiet < 10; ++quiet) {
      for (Rank& rank : ranks_) {
        if (rank.links == nullptr) continue;
        const size_t before = rank.events.size();
        rank.links->Wait(absl::InfinitePast(), rank.events);
        if (rank.events.size() > before) quiet = -1;
      }
    }
  }
  // The processes to which a rank is connected, by what it was told.
  std::vector<uint64_t> Connected(LocalRank rank) {
    std::vector<uint64_t> nonces;
    for (const Event& event : At(rank).events) {
      if (const auto* const connected = std::get_if<PeerConnected>(&event)) {
        const uint64_t nonce = connected->hello.member.nonce;
        EXPECT_EQ(std::count(nonces.begin(), nonces.end(), nonce), 0) << "connected twice";
        nonces.push_back(nonce);
      }
      if (const auto* const lost = std::get_if<PeerLost>(&event)) {
        const auto found = std::find(nonces.begin(), nonces.end(), lost->nonce);
        EXPECT_NE(found, nonces.end()) << "lost without a connection";
        if (found != nonces.end()) nonces.erase(found);
      }
    }
    std::sort(nonces.begin(), nonces.end());
    return nonces;
  }
  void ExpectAllConnected() {
    for (LocalRank rank = 0; rank < kSize; ++rank) {
      if (At(rank).links == nullptr) continue;
      std::vector<uint64_t> others;
      for (const Rank& other : ranks_) {
        if (other.links != nullptr && &other != &At(rank)) others.push_back(other.self.nonce);
      }
      std::sort(others.begin(), others.end());
      EXPECT_EQ(Connected(rank), others) << "rank " << rank;
    }
  }

  static constexpr LocalRank kSize = 4;
  std::string directory_;
  std::array<Rank, kSize> ranks_;
  uint64_t nonces_ = 0;
};

TEST_F(LinksTest, Item3_AllRanksFindOneAnotherWhoeverStartsFirst) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    std::array<LocalRank, kSize> order = {0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), random);
    for (const LocalRank rank : order) {
      Start(rank);
      if (random() % 2 == 0) RunUntilQuiet();
    }
    RunUntilQuiet();
    ExpectAllConnected();
    for (Rank& rank : ranks_) rank = Rank();
  }
}

TEST_F(LinksTest, Item3_ARankThatStartsAgainIsFoundByAll) {
  for (LocalRank rank = 0; rank < kSize; ++rank) Start(rank);
  RunUntilQuiet();
  std::mt19937_64 random(2);
  for (int i = 0; i < 100; ++i) {
    const auto rank = static_cast<LocalRank>(random() % kSize);
    At(rank) = Rank();
    if (random() % 2 == 0) RunUntilQuiet();
    Start(rank);
    if (random() % 2 == 0) RunUntilQuiet();
  }
  RunUntilQuiet();
  ExpectAllConnected();
}

TEST_F(LinksTest, Item3_MessagesArriveInOrder) {
  Start(2);
  Start(0);
  RunUntilQuiet();
  At(0).events.clear();
  for (uint64_t i = 0; i < 100; ++i) At(2).links->Send(0, Behind{i});
  At(2).links->Send(1, Behind{7});  // Is not here.
  RunUntilQuiet();
  ASSERT_EQ(At(0).events.size(), 100u);
  for (uint64_t i = 0; i < 100; ++i) {
    const auto& received = std::get<MessageReceived>(At(0).events[i]);
    EXPECT_EQ(received.from, 2);
    EXPECT_EQ(std::get<Behind>(received.message).number, i);
  }
}

TEST_F(LinksTest, Item3_ARankThatIsRefusedGetsTheReason) {
  Start(1);
  Start(3);
  RunUntilQuiet();
  At(1).links->Refuse(3, At(3).self.nonce,
                      GaveUp{absl::StatusCode::kInvalidArgument, "they disagree", true});
  At(3).events.clear();
  RunUntilQuiet();
  ASSERT_EQ(At(3).events.size(), 2u);
  EXPECT_EQ(std::get<GaveUp>(std::get<MessageReceived>(At(3).events[0]).message).why,
            "they disagree");
  EXPECT_EQ(std::get<PeerLost>(At(3).events[1]).rank, 1);
}

TEST_F(LinksTest, TheLastRankRemovesTheDirectory) {
  Start(0);
  Start(1);
  At(0) = Rank();
  EXPECT_EQ(access(directory_.c_str(), F_OK), 0);
  At(1) = Rank();
  EXPECT_NE(access(directory_.c_str(), F_OK), 0);
}

TEST_F(LinksTest, RanksComeWhileOthersGo) {
  // Three, because one may make the directory again that another has removed from under a third.
  std::vector<std::thread> ranks;
  for (const LocalRank rank : {0, 1, 2}) {
    ranks.emplace_back([options = OptionsOf(rank)] {
      for (int times = 0; times < 1000; ++times) {
        const auto links = Links::Open(options);
        ASSERT_TRUE(links.ok()) << links.status();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(LinksTest, BadInput_ASecondProcessWithTheSameRankIsRefused) {
  Start(1);
  const auto second = Links::Open(OptionsOf(1));
  EXPECT_EQ(second.status(),
            absl::AlreadyExistsError("another process is local rank 1 of this node; start each "
                                     "rank once (LOCAL_RANK)"));
}

TEST_F(LinksTest, BadInput_ADirectoryOfOthersIsRefused) {
  ASSERT_EQ(mkdir(directory_.c_str(), 0777), 0);
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  const auto links = Links::Open(OptionsOf(0));
  EXPECT_EQ(links.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(links.status().message()), HasSubstr("remove it"));
}

TEST_F(LinksTest, BadInput_AConnectionWithOtherBytesIsClosedAndTheOthersGoOn) {
  Start(0);
  Start(1);
  RunUntilQuiet();
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n"), WritePacket(Message(Leave{})),
        WritePacket(Knock{{1, "w1", 77}}), WritePacket(Hello{{0, "w0", 78}, {}, 0, false})}) {
    const auto socket = ConnectLocal(directory_ + "/0");
    ASSERT_TRUE(socket.ok());
    ASSERT_TRUE(SendMessage(*socket, bytes, -1).ok());
    RunUntilQuiet();
    RunUntilQuiet();
    char byte = 0;
    EXPECT_EQ(recv(*socket, &byte, 1, MSG_DONTWAIT), 0) << "it is open";
    close(*socket);
  }
  RunUntilQuiet();
  EXPECT_EQ(Connected(0), std::vector<uint64_t>{At(1).self.nonce});
}

// A child that the process has forked, as PyTorch's loaders of data are, keeps its sockets.
TEST_F(LinksTest, Fault_A13_AProcessThatIsKilledIsLostAtOnceAlsoIfItHasForked) {
  Start(0);
  for (const bool forks : {false, true}) {
    SCOPED_TRACE(forks);
    const LinksOptions options = OptionsOf(1);
    std::array<int, 2> grandchild = {};
    ASSERT_EQ(pipe(grandchild.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto links = Links::Open(options);
      const pid_t own = forks ? fork() : 1;
      if (own == 0) pause();
      if (write(grandchild[1], &own, sizeof(own)) != sizeof(own)) _exit(1);
      std::vector<Event> events;
      while (links.ok()) (*links)->Wait(absl::InfiniteFuture(), events);
      _exit(1);
    }
    pid_t kept = 0;
    ASSERT_EQ(read(grandchild[0], &kept, sizeof(kept)), static_cast<ssize_t>(sizeof(kept)));
    for (const int end : grandchild) close(end);
    std::vector<Event>& events = At(0).events;
    events.clear();
    const absl::Time give_up = absl::Now() + absl::Minutes(1);
    while (events.empty() && absl::Now() < give_up) At(0).links->Wait(give_up, events);
    ASSERT_EQ(std::get<PeerConnected>(events.at(0)).hello.member.nonce, options.self.nonce);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    while (events.size() < 2 && absl::Now() < give_up) At(0).links->Wait(give_up, events);
    EXPECT_EQ(std::get<PeerLost>(events.at(1)).nonce, options.self.nonce);
    // The socket that it has left behind is no obstacle.
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    events.clear();
    Start(1);
    RunUntilQuiet();
    ExpectAllConnected();
    At(1) = Rank();
    RunUntilQuiet();
    if (forks) kill(kept, SIGKILL);
  }
}

TEST_F(LinksTest, Fault_A13_WhatAProcessHasSentBeforeItEndedArrives) {
  Start(0);
  Start(1);
  RunUntilQuiet();
  At(1).events.clear();
  // It has not read what was sent to it, and so its end resets the connection.
  At(1).links->Send(0, Behind{1});
  At(0).links->Send(1, Behind{2});
  At(0) = Rank();
  At(1).links->Send(0, Behind{3});
  RunUntilQuiet();
  ASSERT_EQ(At(1).events.size(), 2u);
  EXPECT_EQ(std::get<Behind>(std::get<MessageReceived>(At(1).events[0]).message).number, 2u);
  EXPECT_EQ(std::get<PeerLost>(At(1).events[1]).rank, 0);
}

}  // namespace
}  // namespace basin::accelerator::node

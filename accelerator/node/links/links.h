// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The connections of one rank with the others of its node: Unix sockets in a directory that the
// ranks share. Each rank listens at a socket of its own, so that a second process with the same
// rank is refused. The higher one of two ranks connects to the lower; a lower one that starts
// later KNOCKS at the higher, which then connects. So two processes have exactly one connection,
// whoever starts first. It ends with the process, even where a child that it has forked keeps the
// socket.
//
// Failure: what is wrong with one connection ends that connection; the other rank is lost.
//
// Thread contract: one thread at a time, except Wake, which is safe from any thread.

#ifndef BASIN_ACCELERATOR_NODE_LINKS_LINKS_H_
#define BASIN_ACCELERATOR_NODE_LINKS_LINKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "accelerator/node/core/event.h"
#include "accelerator/node/links/packet.h"
#include "runtime/shared_memory/socket.h"

namespace basin::accelerator::node {

struct LinksOptions {
  // An absolute path. Made, for this user alone, if it does not exist; the last rank removes it.
  std::string directory;
  GroupMember self;
  int size = 1;
  // What this rank sends at the beginning of a connection.
  std::function<Hello()> hello;
};

class Links {
 public:
  // Listens, and finds the ranks that are here. ALREADY_EXISTS: another process has this rank.
  static absl::StatusOr<std::unique_ptr<Links>> Open(LinksOptions options);
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // Waits for an event, for Wake, or for the time, and appends the events: PeerConnected, PeerLost,
  // MessageReceived.
  void Wait(absl::Time until, std::vector<Event>& events);
  // Ends the present or next Wait.
  void Wake();

  // Does nothing for a rank without a connection.
  void Send(LocalRank to, const Message& message);
  // Sends the message to this process, and ends its connection.
  void Refuse(LocalRank rank, uint64_t nonce, const Message& message);

 private:
  struct Link {
    int socket = -1;
    std::optional<GroupMember> peer;  // After its hello.
    std::optional<LocalRank> to;      // This rank has connected.
    int process = -1;  // Becomes readable when the process at the other end has ended.
  };

  Links(LinksOptions options, int listener, int wake);

  std::string NameOf(LocalRank rank) const;
  // Whether there is a connection with this process.
  bool Knows(uint64_t nonce) const;
  void Accept();
  // Returns whether to try again.
  bool ConnectTo(LocalRank rank);
  void KnockAt(LocalRank rank);
  // Each returns whether the connection goes on.
  bool Receive(Link& link, std::vector<Event>& events);
  bool On(const Knock& knock);
  bool On(Link& link, const Hello& hello, std::vector<Event>& events);
  static bool Write(Link& link, const Packet& packet);
  static void End(Link& link, std::vector<Event>& events);
  void RemoveEnded();

  const LinksOptions options_;
  const int listener_;
  const int wake_;
  const std::optional<SocketFile> file_;
  std::vector<Link> links_;
  absl::Time accept_from_ = absl::InfinitePast();  // Not before; after an error.
  std::vector<LocalRank> knocked_;                 // Ranks to connect to.
};

}  // namespace basin::accelerator::node

#endif  // BASIN_ACCELERATOR_NODE_LINKS_LINKS_H_

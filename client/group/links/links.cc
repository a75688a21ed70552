// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/group/links/links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::client::group {
namespace {

constexpr int kMostWaitMilliseconds = 60 * 1000;

absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat(
        "the directory ", path, " of the local group cannot be made: ", std::strerror(errno),
        "; set TMPDIR to a directory that can be written to"));
  }
  struct stat status = {};
  const bool own = lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                   status.st_uid == geteuid() && (status.st_mode & 0077) == 0;
  if (own) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the directory ", path,
                   " of the local group does not belong to this user alone; remove it, or set "
                   "TMPDIR to another directory"));
}

// Whether a process of this user is at the other end.
bool IsOwn(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

int MillisecondsUntil(absl::Time until) {
  if (until == absl::InfiniteFuture()) return kMostWaitMilliseconds;
  // Rounded up, so that the time has passed after the wait.
  const int64_t wait = absl::ToInt64Milliseconds(until - absl::Now() + absl::Microseconds(999));
  return static_cast<int>(std::clamp<int64_t>(wait, 0, kMostWaitMilliseconds));
}

}  // namespace

Links::Links(LinksOptions options, int listener, int wake)
    : options_(std::move(options)),
      listener_(listener),
      wake_(wake),
      file_(SocketFileAt(NameOf(options_.self.rank))) {}

absl::StatusOr<std::unique_ptr<Links>> Links::Open(LinksOptions options) {
  if (absl::Status status = MakeDirectory(options.directory); !status.ok()) return status;
  const std::string name = absl::StrCat(options.directory, "/", options.self.rank);
  absl::StatusOr<int> listener = ListenLocal(name);
  if (!listener.ok()) {
    if (absl::StatusOr<int> used = ConnectLocal(name); used.ok()) {
      close(*used);
      return absl::AlreadyExistsError(
          absl::StrCat("another process is local rank ", options.self.rank,
                       " of this node; start each rank once (LOCAL_RANK)"));
    }
    return listener.status();
  }
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) {
    close(*listener);
    return absl::UnavailableError(absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  auto links = std::unique_ptr<Links>(new Links(std::move(options), *listener, wake));
  for (LocalRank rank = 0; rank < links->options_.size; ++rank) {
    if (rank < links->options_.self.rank) links->ConnectTo(rank);
    if (rank > links->options_.self.rank) links->KnockAt(rank);
  }
  return links;
}

Links::~Links() {
  RemoveSocket(NameOf(options_.self.rank), file_);
  for (const Link& link : links_) close(link.socket);
  close(listener_);
  close(wake_);
}

std::string Links::NameOf(LocalRank rank) const {
  return absl::StrCat(options_.directory, "/", rank);
}

// ---- connections

void Links::ConnectTo(LocalRank rank) {
  // Where no process listens, one that starts later knocks.
  const absl::StatusOr<int> socket = ConnectLocal(NameOf(rank));
  if (!socket.ok()) return;
  Link link{*socket, std::nullopt, rank};
  if (IsOwn(*socket) && Write(link, options_.hello())) {
    links_.push_back(link);
  } else {
    close(*socket);
  }
}

void Links::KnockAt(LocalRank rank) {
  const absl::StatusOr<int> socket = ConnectLocal(NameOf(rank));
  if (!socket.ok()) return;
  Link link{*socket, std::nullopt, std::nullopt};
  if (IsOwn(*socket)) Write(link, Knock{options_.self});
  close(*socket);
}

void Links::Accept() {
  while (true) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return;
    if (IsOwn(socket)) {
      links_.push_back({socket, std::nullopt, std::nullopt});
    } else {
      close(socket);
    }
  }
}

bool Links::On(const Knock& knock) {
  const LocalRank rank = knock.member.rank;
  const bool known = std::any_of(links_.begin(), links_.end(), [&](const Link& link) {
    return link.peer && link.socket >= 0 && link.peer->nonce == knock.member.nonce;
  });
  if (rank < options_.self.rank && !known) knocked_.push_back(rank);
  return false;
}

bool Links::On(Link& link, const Hello& hello, std::vector<Event>& events) {
  const LocalRank rank = hello.member.rank;
  // Only a higher rank connects to this one, and a lower one answers.
  const bool expected = link.to ? rank == *link.to : rank > options_.self.rank;
  const bool known = std::any_of(links_.begin(), links_.end(), [&](const Link& other) {
    return other.peer && other.socket >= 0 && other.peer->nonce == hello.member.nonce;
  });
  if (!expected || known) return false;
  if (!link.to && !Write(link, options_.hello())) return false;
  // A process that this one replaces is dead, even if its connection has not ended here yet.
  for (Link& other : links_) {
    if (other.peer && other.peer->rank == rank && other.socket >= 0) End(other, events);
  }
  link.peer = hello.member;
  events.push_back(PeerConnected{hello});
  return true;
}

bool Links::Receive(Link& link, std::vector<Event>& events) {
  std::array<char, kMostPacketBytes> bytes;
  while (true) {
    const ssize_t size = recv(link.socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) return false;
    const absl::StatusOr<Packet> packet =
        ReadPacket(absl::string_view(bytes.data(), static_cast<size_t>(size)));
    if (!packet.ok()) return false;
    if (link.peer) {
      const auto* const message = std::get_if<Message>(&*packet);
      if (message == nullptr) return false;
      events.push_back(MessageReceived{link.peer->rank, *message});
    } else if (const auto* const hello = std::get_if<Hello>(&*packet)) {
      if (!On(link, *hello, events)) return false;
    } else if (const auto* const knock = std::get_if<Knock>(&*packet)) {
      return On(*knock);
    } else {
      return false;
    }
  }
}

bool Links::Write(Link& link, const Packet& packet) {
  // A process that does not read for as long as this fills the socket's memory is as good as lost.
  return SendMessage(link.socket, WritePacket(packet), -1).ok();
}

void Links::End(Link& link, std::vector<Event>& events) {
  close(link.socket);
  link.socket = -1;
  if (link.peer) events.push_back(PeerLost{link.peer->rank, link.peer->nonce});
}

// ---- calls

void Links::Wait(absl::Time until, std::vector<Event>& events) {
  std::vector<pollfd> polled = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
  for (const Link& link : links_) polled.push_back({link.socket, POLLIN, 0});
  poll(polled.data(), polled.size(), lost_.empty() ? MillisecondsUntil(until) : 0);
  uint64_t count = 0;
  if ((polled[1].revents & POLLIN) != 0) [[maybe_unused]]
    const auto n = read(wake_, &count, 8);
  for (size_t i = 2; i < polled.size(); ++i) {
    Link& link = links_[i - 2];
    if (polled[i].revents == 0 || link.socket < 0) continue;
    if (!Receive(link, events)) End(link, events);
  }
  events.insert(events.end(), lost_.begin(), lost_.end());
  lost_.clear();
  links_.erase(std::remove_if(links_.begin(), links_.end(),
                              [](const Link& link) { return link.socket < 0; }),
               links_.end());
  if (polled[0].revents != 0) Accept();
  for (const LocalRank rank : std::exchange(knocked_, {})) ConnectTo(rank);
}

void Links::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto n = write(wake_, &one, sizeof(one));
}

void Links::Send(LocalRank to, const Message& message) {
  for (Link& link : links_) {
    if (!link.peer || link.peer->rank != to || link.socket < 0) continue;
    if (!Write(link, message)) End(link, lost_);
    return;
  }
}

void Links::Refuse(LocalRank rank, uint64_t nonce, const Message& message) {
  for (Link& link : links_) {
    if (!link.peer || link.peer->rank != rank || link.peer->nonce != nonce) continue;
    if (link.socket < 0) return;
    Write(link, message);
    End(link, lost_);
    return;
  }
}

}  // namespace basin::client::group

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/links/links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::accelerator::node {
namespace {

constexpr int kMostWaitMilliseconds = 60 * 1000;
// Between attempts, where the system lacks descriptors or memory.
constexpr absl::Duration kPause = absl::Milliseconds(100);

absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat(
        "the directory ", path, " of the local group cannot be made: ", std::strerror(errno),
        "; the ranks of a node need a /tmp that they can write to"));
  }
  struct stat status = {};
  const int looked = lstat(path.c_str(), &status);
  if (looked != 0 && errno == ENOENT) return absl::OkStatus();  // It was removed meanwhile.
  const bool own = looked == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
                   (status.st_mode & 0077) == 0;
  if (own) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the directory ", path, " of the local group does not belong to this user alone; remove it"));
}

ucred PeerOf(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {0, ~0u, ~0u};
  return peer;
}

// Whether a process of this user is at the other end.
bool IsOwn(int socket) { return PeerOf(socket).uid == geteuid(); }

// The declaration of glibc 2.36 cannot be linked from C++.
int PidfdOpen(pid_t process) { return static_cast<int>(syscall(SYS_pidfd_open, process, 0)); }

// A descriptor of the process at the other end, which becomes readable when that has ended.
// Negative: it has another process namespace, where its number means nothing here.
int ProcessOf(int socket) {
  const pid_t process = PeerOf(socket).pid;
  return process > 0 ? PidfdOpen(process) : -1;
}

// Whether the process that listens at the name has ended, and only a child of it has the socket.
bool IsLeftBehind(const std::string& name) {
  const absl::StatusOr<int> socket = ConnectLocal(name);
  if (!socket.ok()) return false;
  const pid_t number = PeerOf(*socket).pid;
  close(*socket);
  if (number <= 0) return false;
  const int process = PidfdOpen(number);
  if (process < 0) return errno == ESRCH;
  pollfd ended = {process, POLLIN, 0};
  poll(&ended, 1, 0);
  close(process);
  return ended.revents != 0;
}

std::string SocketOf(const std::string& directory, LocalRank rank) {
  return absl::StrCat(directory, "/", rank);
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
  const std::string name = SocketOf(options.directory, options.self.rank);
  absl::StatusOr<int> listener = absl::UnknownError("");
  do {
    if (absl::Status status = MakeDirectory(options.directory); !status.ok()) return status;
    listener = ListenLocal(name);
    // Another rank, the last one in it, may have removed the directory meanwhile, and a third may
    // have made it again.
  } while (absl::IsNotFound(listener.status()));
  if (!listener.ok() && IsLeftBehind(name)) {
    unlink(name.c_str());
    listener = ListenLocal(name);
  }
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
    if (rank < links->options_.self.rank && links->ConnectTo(rank)) {
      links->knocked_.push_back(rank);
    }
    if (rank > links->options_.self.rank) links->KnockAt(rank);
  }
  return links;
}

Links::~Links() {
  RemoveSocket(NameOf(options_.self.rank), file_);
  rmdir(options_.directory.c_str());  // If it is empty.
  std::vector<Event> events;
  for (Link& link : links_) End(link, events);
  close(listener_);
  close(wake_);
}

std::string Links::NameOf(LocalRank rank) const { return SocketOf(options_.directory, rank); }

// ---- connections

bool Links::ConnectTo(LocalRank rank) {
  const absl::StatusOr<int> socket = ConnectLocal(NameOf(rank));
  // Where no process listens, one that starts later knocks.
  if (!socket.ok()) return errno != ECONNREFUSED && errno != ENOENT;
  Link link;
  link.socket = *socket;
  link.to = rank;
  if (IsOwn(*socket) && Write(link, options_.hello())) {
    link.process = ProcessOf(*socket);
    links_.push_back(link);
  } else {
    close(*socket);
  }
  return false;
}

void Links::KnockAt(LocalRank rank) {
  const absl::StatusOr<int> socket = ConnectLocal(NameOf(rank));
  if (!socket.ok()) return;
  Link link;
  link.socket = *socket;
  if (IsOwn(*socket)) Write(link, Knock{options_.self});
  close(*socket);
}

void Links::Accept() {
  while (true) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) {
      if (errno != EAGAIN) accept_from_ = absl::Now() + kPause;
      return;
    }
    if (IsOwn(socket)) {
      links_.push_back({socket, std::nullopt, std::nullopt, ProcessOf(socket)});
    } else {
      close(socket);
    }
  }
}

bool Links::Knows(uint64_t nonce) const {
  return std::any_of(links_.begin(), links_.end(), [nonce](const Link& link) {
    return link.peer && link.socket >= 0 && link.peer->nonce == nonce;
  });
}

bool Links::On(const Knock& knock) {
  const LocalRank rank = knock.member.rank;
  if (rank < options_.self.rank && !Knows(knock.member.nonce)) knocked_.push_back(rank);
  return false;
}

bool Links::On(Link& link, const Hello& hello, std::vector<Event>& events) {
  const LocalRank rank = hello.member.rank;
  // Only a higher rank connects to this one, and a lower one answers.
  const bool expected = link.to ? rank == *link.to : rank > options_.self.rank;
  if (!expected || Knows(hello.member.nonce)) return false;
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
    const ssize_t size = recv(link.socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_TRUNC);
    // A peer that has closed with something unread resets the connection; what it has sent before
    // is behind that error.
    if (size < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (size < 0) return errno == EAGAIN;
    if (size == 0 || size > static_cast<ssize_t>(bytes.size())) return false;
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
  if (link.process >= 0) close(link.process);
  link.process = -1;
  if (link.peer) events.push_back(PeerLost{link.peer->rank, link.peer->nonce});
}

// ---- calls

void Links::Wait(absl::Time until, std::vector<Event>& events) {
  if (!knocked_.empty()) until = std::min(until, absl::Now() + kPause);
  const bool accepts = accept_from_ <= absl::Now();
  if (!accepts) until = std::min(until, accept_from_);
  // Negative descriptors are left out.
  std::vector<pollfd> polled = {{accepts ? listener_ : -1, POLLIN, 0}, {wake_, POLLIN, 0}};
  for (const Link& link : links_) {
    polled.push_back({link.socket, POLLIN, 0});
    polled.push_back({link.process, POLLIN, 0});
  }
  poll(polled.data(), polled.size(), MillisecondsUntil(until));
  uint64_t count = 0;
  if ((polled[1].revents & POLLIN) != 0) [[maybe_unused]]
    const auto n = read(wake_, &count, 8);
  for (size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    const bool process_ended = polled[3 + 2 * i].revents != 0;
    if (link.socket < 0 || (polled[2 + 2 * i].revents == 0 && !process_ended)) continue;
    // What the process has sent before it ended is received first.
    if (!Receive(link, events) || process_ended) End(link, events);
  }
  RemoveEnded();
  if (polled[0].revents != 0) Accept();
  for (const LocalRank rank : std::exchange(knocked_, {})) {
    if (ConnectTo(rank)) knocked_.push_back(rank);
  }
}

void Links::RemoveEnded() {
  links_.erase(std::remove_if(links_.begin(), links_.end(),
                              [](const Link& link) { return link.socket < 0; }),
               links_.end());
}

void Links::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto n = write(wake_, &one, sizeof(one));
}

void Links::Send(LocalRank to, const Message& message) {
  for (Link& link : links_) {
    if (!link.peer || link.peer->rank != to || link.socket < 0) continue;
    // It is lost when what it has sent before has been received.
    if (!Write(link, message)) shutdown(link.socket, SHUT_RDWR);
    return;
  }
}

void Links::Refuse(LocalRank rank, uint64_t nonce, const Message& message) {
  for (Link& link : links_) {
    if (!link.peer || link.peer->rank != rank || link.peer->nonce != nonce) continue;
    if (link.socket < 0) continue;
    Write(link, message);
    shutdown(link.socket, SHUT_RDWR);
    return;
  }
}

}  // namespace basin::accelerator::node

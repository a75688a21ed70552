// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whatever a peer sends over the local socket: messages of arbitrary bytes, with a descriptor or
// without, first as an opening and then in a session. An accepted message has the content that was
// sent.

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "runtime/shared_memory/segments.h"
#include "runtime/shared_memory/socket.h"
#include "tests/runtime/shared_memory/emulated_opener.h"

namespace basin {
namespace {

void Run(const uint8_t* data, size_t size) {
  static const std::shared_ptr<Segment> segment = *Segment::Create(4096);
  std::array<int, 2> sockets;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0) std::abort();
  static const EmulatedOpener opener;
  Segments receiver(sockets[1], uint64_t{1} << 20, &opener);
  bool opening = true;
  // A byte with the length, whose top bit is set if a descriptor comes along, and the message.
  for (size_t at = 0; at < size;) {
    const uint8_t head = data[at++];
    const size_t length = std::min<size_t>(head & 0x3f, size - at);
    const std::string bytes(reinterpret_cast<const char*>(data + at), length);
    at += length;
    if (bytes.empty()) continue;  // The socket would take it for its end.
    const int descriptor = (head & 0x80) != 0 ? segment->descriptor() : -1;
    if (!SendMessage(sockets[0], bytes, descriptor).ok()) std::abort();
    if (opening) {
      const auto message = receiver.ReceiveOpening();
      if (message.ok() && EncodeSegmentMessage(*message) != bytes) std::abort();
      opening = false;
    } else if (!receiver.Receive().ok()) {
      break;
    }
    const auto found = receiver.At({1, 4095, 1});
    const size_t pieces = found.ok() && (*found)->on_device() != nullptr ? 0 : 1;
    if (found.ok() && (*found)->pieces().size() != pieces) std::abort();
    if (receiver.At({1, 4096, 1}).ok()) std::abort();
  }
  close(sockets[0]);
}

}  // namespace
}  // namespace basin

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  basin::Run(data, size);
  return 0;
}

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/transport/raw_http2.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include <gtest/gtest.h>

namespace basin::aggregator {
namespace {

std::string BigEndian(uint64_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
  return out;
}

uint32_t NumberAt(const std::string& bytes, size_t at, int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

// A string of HPACK, not compressed: a length with a prefix of seven bits, and the bytes.
std::string HpackString(const std::string& text) {
  std::string out;
  if (text.size() < 127) {
    out += static_cast<char>(text.size());
  } else {
    out += static_cast<char>(127);
    size_t rest = text.size() - 127;
    for (; rest >= 128; rest /= 128) out += static_cast<char>(rest % 128 + 128);
    out += static_cast<char>(rest);
  }
  return out + text;
}

// A field that is not put into the table.
std::string HpackField(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + HpackString(name) + HpackString(value);
}

// The value that follows the name in a block whose strings are not compressed, as gRPC writes them.
std::optional<std::string> FieldIn(const std::string& block, const std::string& name) {
  const size_t at = block.find(name);
  if (at == std::string::npos || at + name.size() >= block.size()) return std::nullopt;
  const size_t length = static_cast<uint8_t>(block[at + name.size()]);
  return block.substr(at + name.size() + 1, length);
}

}  // namespace

RawHttp2::RawHttp2(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const timeval minute{60, 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute));
}

RawHttp2::~RawHttp2() { close(socket_); }

bool RawHttp2::Send(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

std::string RawHttp2::FrameOf(Type type, uint8_t flags, uint32_t stream,
                              const std::string& payload) {
  return BigEndian(payload.size(), 3) + static_cast<char>(type) + static_cast<char>(flags) +
         BigEndian(stream, 4) + payload;
}

bool RawHttp2::SendFrame(Type type, uint8_t flags, uint32_t stream, const std::string& payload) {
  return Send(FrameOf(type, flags, stream, payload));
}

void RawHttp2::Begin() {
  Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  SendFrame(kSettings, kNoFlags, 0, "");
}

bool RawHttp2::Call(uint32_t stream, const std::string& path, const Headers& more) {
  std::string block = HpackField(":method", "POST") + HpackField(":scheme", "http") +
                      HpackField(":path", path) + HpackField(":authority", "localhost") +
                      HpackField("te", "trailers") + HpackField("content-type", "application/grpc");
  for (const auto& [name, value] : more) block += HpackField(name, value);
  return SendFrame(kHeaders, kEndHeaders, stream, block);
}

std::string RawHttp2::Message(uint8_t flag, uint32_t length, const std::string& bytes) {
  return std::string(1, static_cast<char>(flag)) + BigEndian(length, 4) + bytes;
}

bool RawHttp2::ReadExactly(size_t bytes, std::string* out) {
  out->resize(bytes);
  size_t read = 0;
  while (read < bytes) {
    const ssize_t n = recv(socket_, out->data() + read, bytes - read, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      ADD_FAILURE() << "the server says nothing and does not close";
      return false;
    }
    if (n <= 0) return false;
    read += static_cast<size_t>(n);
  }
  return true;
}

std::optional<RawHttp2::Frame> RawHttp2::Read() {
  std::string head;
  if (!ReadExactly(9, &head)) return std::nullopt;
  Frame frame;
  frame.type = static_cast<uint8_t>(head[3]);
  frame.flags = static_cast<uint8_t>(head[4]);
  frame.stream = NumberAt(head, 5, 4);
  if (!ReadExactly(NumberAt(head, 0, 3), &frame.payload)) return std::nullopt;
  if (frame.type == kSettings && frame.flags == kNoFlags) SendFrame(kSettings, kAck, 0, "");
  if (frame.type == kPing && frame.flags == kNoFlags && answers_pings) {
    SendFrame(kPing, kAck, 0, frame.payload);
  }
  return frame;
}

int RawHttp2::AwaitStatus(uint32_t stream, uint32_t* reset) {
  while (const std::optional<Frame> frame = Read()) {
    if (frame->stream != stream) continue;
    if (frame->type == kRstStream) {
      if (reset != nullptr) *reset = NumberAt(frame->payload, 0, 4);
      return -1;
    }
    if (frame->type != kHeaders || (frame->flags & kEndStream) == 0) continue;
    const std::optional<std::string> status = FieldIn(frame->payload, "grpc-status");
    EXPECT_TRUE(status.has_value()) << "trailers without a status";
    return std::atoi(status.value_or("-3").c_str());
  }
  return -2;
}

std::string RawHttp2::AwaitClosed() {
  std::string goaway;
  while (const std::optional<Frame> frame = Read()) {
    if (frame->type == kGoAway) goaway = frame->payload.substr(8);
  }
  return goaway;
}

}  // namespace basin::aggregator

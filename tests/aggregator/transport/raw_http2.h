// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// HTTP/2 by hand over a TCP connection, for bytes that no gRPC client would send.
//
// Thread contract: one thread.
// Failure: a read that takes longer than a minute fails the test.

#ifndef BASIN_TESTS_AGGREGATOR_TRANSPORT_RAW_HTTP2_H_
#define BASIN_TESTS_AGGREGATOR_TRANSPORT_RAW_HTTP2_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace basin::aggregator {

class RawHttp2 {
 public:
  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kRstStream = 3,
    kSettings = 4,
    kPing = 6,
    kGoAway = 7,
    kWindowUpdate = 8,
  };
  enum Flag : uint8_t { kNoFlags = 0, kEndStream = 1, kAck = 1, kEndHeaders = 4 };
  struct Frame {
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
    std::string payload;
  };
  using Headers = std::vector<std::pair<std::string, std::string>>;

  explicit RawHttp2(int port);
  ~RawHttp2();
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;

  // Whether the connection took it all.
  bool Send(const std::string& bytes);
  static std::string FrameOf(Type type, uint8_t flags, uint32_t stream, const std::string& payload);
  bool SendFrame(Type type, uint8_t flags, uint32_t stream, const std::string& payload);

  // The preface and empty settings.
  void Begin();
  // A gRPC call; stream numbers are odd and grow.
  bool Call(uint32_t stream, const std::string& path, const Headers& more = {});
  // A message with gRPC's prefix as given: `flag` 0 is uncompressed, `length` is its claimed
  // length.
  static std::string Message(uint8_t flag, uint32_t length, const std::string& bytes);

  // The next frame; nothing when the other side has closed. Settings and pings are answered, pings
  // only while `answers_pings`.
  std::optional<Frame> Read();
  // Reads until the call ends: gRPC's status code, or -1 when it was reset, with the HTTP/2 error
  // in `reset`, or -2 when the connection ended.
  int AwaitStatus(uint32_t stream, uint32_t* reset = nullptr);
  // Reads until the other side closes; returns the last GOAWAY's text, if there was one.
  std::string AwaitClosed();

  bool answers_pings = true;

 private:
  bool ReadExactly(size_t bytes, std::string* out);

  int socket_ = -1;
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_TRANSPORT_RAW_HTTP2_H_

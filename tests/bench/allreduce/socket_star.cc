// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The least cost of an all-reduce through a hub: the same bytes in the same pattern over bare TCP
// sockets, without arithmetic, membership or messages. Each worker sends its model over a few
// connections and receives as much, both at once; the hub sends a block of the result back as soon
// as it has that block from every worker.
//
//   socket_star hub --workers=4 --streams=2 --bytes=67108864 --rounds=5       prints its port, then
//   a line socket_star worker --port=12345 --streams=2 --bytes=67108864 --rounds=5   prints a line
//
// A line is JSON: seconds per round, and the CPU seconds of the process over these rounds.
//
// The hub receives everything into one block and sends from another, which the cache holds. No
// all-reduce can do that: contributions must be kept until the last one has arrived. With --keep=1
// each connection is received into its own memory, and one result is sent, both of a whole model.
//
// --address=IP is that of the hub, --block the size of a block, and --buffer what a socket holds
// that the other end has not received, which the kernel decides otherwise. A worker may have
// several hubs, --address=IP,IP,... at one --port, which share the model equally; --bytes of a hub
// are then its share. With --window a worker sends no more bytes than that to a hub ahead of what
// it has received from it.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/allreduce/stopwatch.h"

namespace basin::bench {
namespace {

struct Options {
  std::vector<in_addr> addresses{{htonl(INADDR_LOOPBACK)}};
  int port = 0;
  size_t block = size_t{1} << 20;
  int buffer = 0;
  size_t window = 0;
  int workers = 0;
  int streams = 2;
  size_t bytes = size_t{64} << 20;
  int rounds = 5;
  bool keep = false;
  size_t connections() const { return addresses.size() * static_cast<size_t>(streams); }
  size_t per_stream() const { return bytes / connections(); }
  size_t blocks() const { return (per_stream() + block - 1) / block; }
  size_t block_bytes(size_t b) const { return std::min(block, per_stream() - b * block); }
  // Where the hub has a block of a stream.
  size_t place_at_hub(size_t b) const { return keep ? b * block : 0; }
};

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

void ReadAll(int fd, char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = read(fd, to, size);
    if (got <= 0) Fail("read");
    to += got;
    size -= static_cast<size_t>(got);
  }
}

void WriteAll(int fd, const char* from, size_t size) {
  while (size > 0) {
    const ssize_t put = write(fd, from, size);
    if (put <= 0) Fail("write");
    from += put;
    size -= static_cast<size_t>(put);
  }
}

void Prepare(int fd, const Options& options) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (options.buffer == 0) return;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &options.buffer, sizeof(options.buffer));
}

// ---- worker

// How far the bytes that a connection has received are, for the thread that sends over it.
class Received {
 public:
  void Add(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    bytes_ += bytes;
    changed_.notify_all();
  }
  void Await(size_t bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return bytes_ >= bytes; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t bytes_ = 0;
};

void SendModel(int fd, const char* from, const Options& options, Received& received) {
  const size_t window = options.window / static_cast<size_t>(options.streams);
  for (size_t b = 0; b < options.blocks(); ++b) {
    const size_t end = b * options.block + options.block_bytes(b);
    if (window > 0 && end > window) received.Await(end - window);
    WriteAll(fd, from + b * options.block, options.block_bytes(b));
  }
}

void RunWorker(const Options& options) {
  std::vector<int> fds;
  for (const in_addr hub : options.addresses) {
    for (int i = 0; i < options.streams; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(options.port));
      address.sin_addr = hub;
      if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Fail("connect");
      Prepare(fd, options);
      fds.push_back(fd);
    }
  }
  std::vector<char> gradient(options.bytes, 1);
  std::vector<char> result(options.bytes);
  Stopwatch stopwatch;
  for (int round = 0; round < kWarmUp + options.rounds; ++round) {
    stopwatch.RoundBegins();
    std::vector<Received> received(fds.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < fds.size(); ++i) {
      const size_t at = i * options.per_stream();
      threads.emplace_back(
          [&, i, at] { SendModel(fds[i], gradient.data() + at, options, received[i]); });
      threads.emplace_back([&, i, at] {
        for (size_t b = 0; b < options.blocks(); ++b) {
          ReadAll(fds[i], result.data() + at + b * options.block, options.block_bytes(b));
          received[i].Add(options.block_bytes(b));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    stopwatch.RoundEnded();
  }
  stopwatch.Print();
}

// ---- hub

// How many workers have sent each block of each stream, over all rounds.
class Arrivals {
 public:
  Arrivals(size_t streams, size_t blocks) : counts_(streams, std::vector<int>(blocks)) {}

  void Add(size_t stream, size_t block) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++counts_[stream][block];
    changed_.notify_all();
  }
  void Await(size_t stream, size_t block, int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return counts_[stream][block] >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<int>> counts_;
};

void RunHub(const Options& options) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(options.port));
  address.sin_addr = options.addresses.front();
  socklen_t size = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0) Fail("bind");
  if (listen(listener, 64) != 0) Fail("listen");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);

  // Connections in the order of arrival: which worker has which does not matter for the bytes.
  const size_t connections = static_cast<size_t>(options.workers) * options.streams;
  const std::vector<char> result(options.keep ? options.bytes : options.block, 1);
  Arrivals arrivals(static_cast<size_t>(options.streams), options.blocks());
  Stopwatch stopwatch;
  std::mutex mutex;
  std::map<int, size_t> ended;  // Connections that have ended each round.
  stopwatch.RoundBegins();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < connections; ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) Fail("accept");
    Prepare(fd, options);
    const size_t stream = i % static_cast<size_t>(options.streams);
    threads.emplace_back([&, fd, stream] {
      std::vector<char> received(options.keep ? options.per_stream() : options.block);
      for (int round = 0; round < kWarmUp + options.rounds; ++round) {
        for (size_t b = 0; b < options.blocks(); ++b) {
          ReadAll(fd, received.data() + options.place_at_hub(b), options.block_bytes(b));
          arrivals.Add(stream, b);
        }
      }
    });
    threads.emplace_back([&, fd, stream] {
      const char* from = result.data() + (options.keep ? stream * options.per_stream() : 0);
      for (int round = 0; round < kWarmUp + options.rounds; ++round) {
        for (size_t b = 0; b < options.blocks(); ++b) {
          arrivals.Await(stream, b, (round + 1) * options.workers);
          WriteAll(fd, from + options.place_at_hub(b), options.block_bytes(b));
        }
        std::lock_guard<std::mutex> lock(mutex);
        if (++ended[round] < connections) continue;
        stopwatch.RoundEnded();
        stopwatch.RoundBegins();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stopwatch.Print();
}

std::vector<in_addr> AddressesOf(const char* list) {
  std::vector<in_addr> addresses;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    if (inet_pton(AF_INET, part.c_str(), &addresses.emplace_back()) != 1) Fail("--address");
  }
  return addresses;
}

bool Take(const char* argument, const char* name, long* value) {
  const size_t size = std::strlen(name);
  if (std::strncmp(argument, name, size) != 0) return false;
  *value = std::strtol(argument + size, nullptr, 10);
  return true;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 2; i < argc; ++i) {
    long value = 0;
    if (std::strncmp(argv[i], "--address=", 10) == 0) {
      options.addresses = AddressesOf(argv[i] + 10);
    } else if (Take(argv[i], "--block=", &value)) {
      options.block = static_cast<size_t>(value);
    } else if (Take(argv[i], "--buffer=", &value)) {
      options.buffer = static_cast<int>(value);
    } else if (Take(argv[i], "--window=", &value)) {
      options.window = static_cast<size_t>(value);
    } else if (Take(argv[i], "--port=", &value)) {
      options.port = static_cast<int>(value);
    } else if (Take(argv[i], "--workers=", &value)) {
      options.workers = static_cast<int>(value);
    } else if (Take(argv[i], "--streams=", &value)) {
      options.streams = static_cast<int>(value);
    } else if (Take(argv[i], "--bytes=", &value)) {
      options.bytes = static_cast<size_t>(value);
    } else if (Take(argv[i], "--rounds=", &value)) {
      options.rounds = static_cast<int>(value);
    } else if (Take(argv[i], "--keep=", &value)) {
      options.keep = value != 0;
    }
  }
  if (options.window > 0 && options.window / static_cast<size_t>(options.streams) < options.block) {
    std::fprintf(stderr, "--window must be 0, or at least a block for each stream\n");
    return 2;
  }
  if (argc > 1 && std::string(argv[1]) == "hub" && options.workers > 0) {
    RunHub(options);
  } else if (argc > 1 && std::string(argv[1]) == "worker" && options.port > 0) {
    RunWorker(options);
  } else {
    std::fprintf(stderr,
                 "usage: socket_star hub|worker --address= --port= --workers= --streams= --bytes= "
                 "--rounds= --keep= --block= --buffer= --window=\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace basin::bench

int main(int argc, char** argv) { return basin::bench::Main(argc, argv); }

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Stands in for NCCL among several processes: a shared library with NCCL's names over host memory,
// whose ranks exchange messages through named pipes in a directory that the unique id names. A
// process that dies leaves the others waiting until they abort, as with NCCL.
//
// A test gives it the function that adds work to a stream: processNcclSetEnqueue. The order in
// which ncclReduce adds is that of the ranks from the last to the first.
//
// Thread contract: any thread; of each communicator, one at a time, besides ncclCommAbort.

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/accelerator/node/nccl/arithmetic.h"

namespace basin::accelerator::nccl {
namespace {

using Enqueue = void (*)(Stream stream, void (*run)(void*), void* argument);
std::atomic<Enqueue> enqueue{nullptr};

// One end of a communicator. The pipes of a rank exist, and are open here, before others see that
// it has joined, so that nothing is lost that is written to them.
struct State {
  ~State() {
    for (const auto* pipes : {&to, &from}) {
      for (const auto& [peer, pipe] : *pipes) close(pipe);
    }
  }

  bool Formed() {
    for (int each = 0; each < ranks && !formed; ++each) {
      if (access(Joined(each).c_str(), F_OK) != 0) return false;
    }
    formed = true;
    return true;
  }
  std::string Joined(int each) const { return directory + "/joined-" + std::to_string(each); }

  std::string directory;
  int ranks = 0;
  int rank = 0;
  std::map<int, int> to, from;  // Pipes by peer.
  std::atomic<bool> formed{false};
  std::atomic<bool> aborted{false};
};
using StatePtr = std::shared_ptr<State>;

int OpenPipe(const std::string& path) {
  if (mkfifo(path.c_str(), 0600) != 0 && errno != EEXIST) return -1;
  return open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

// Bytes that go through one pipe.
struct Transfer {
  int pipe = -1;
  bool writes = false;
  char* data = nullptr;
  size_t left = 0;

  // Returns whether it has moved bytes.
  bool Advance() {
    const ssize_t moved = writes ? write(pipe, data, left) : read(pipe, data, left);
    if (moved <= 0) return false;
    data += moved;
    left -= static_cast<size_t>(moved);
    return true;
  }
};

// A reduction at its root, which is computed when everything has come.
struct Reduction {
  std::vector<std::vector<char>> parts;  // By rank.
  void* to = nullptr;
  size_t count = 0;
  DataType type = kUint8;
  RedOp op = kSum;

  void Compute() const {
    std::vector<char> sum = parts.back();
    for (size_t rank = parts.size() - 1; rank-- > 0;) {
      CombineAll(sum.data(), parts[rank].data(), count, type, op);
    }
    std::memcpy(to, sum.data(), sum.size());
  }
};

// What is posted between ncclGroupStart and ncclGroupEnd, or by one call. The memory is read when
// it runs, as a device does.
struct Launch {
  StatePtr state;
  std::vector<std::function<void(Launch&)>> posts;
  std::vector<Transfer> transfers;
  std::vector<std::unique_ptr<Reduction>> reductions;

  void Send(int peer, const void* data, size_t bytes) {
    auto* const read = const_cast<char*>(static_cast<const char*>(data));
    transfers.push_back({state->to[peer], true, read, bytes});
  }
  void Receive(int peer, void* data, size_t bytes) {
    transfers.push_back({state->from[peer], false, static_cast<char*>(data), bytes});
  }

  // Those of one pipe go through it in order.
  bool AdvanceAll() {
    bool moved = false;
    std::map<int, bool> busy;
    for (Transfer& transfer : transfers) {
      if (transfer.left == 0 || busy[transfer.pipe]) continue;
      moved = transfer.Advance() || moved;
      busy[transfer.pipe] = transfer.left > 0;
    }
    return moved;
  }
  bool Done() const {
    return std::all_of(transfers.begin(), transfers.end(),
                       [](const Transfer& transfer) { return transfer.left == 0; });
  }

  void Run() {
    for (const auto& post : posts) post(*this);
    while (!Done() && !state->aborted) {
      if (AdvanceAll()) continue;
      std::vector<pollfd> polled;
      for (const Transfer& transfer : transfers) {
        const short wanted = transfer.writes ? POLLOUT : POLLIN;
        if (transfer.left > 0) polled.push_back({transfer.pipe, wanted, 0});
      }
      poll(polled.data(), polled.size(), 5);  // An abort is not seen by poll.
    }
    if (state->aborted) return;
    for (const auto& reduction : reductions) reduction->Compute();
  }
};

struct Library {
  std::mutex mutex;
  std::map<Comm, StatePtr> comms;
};
Library& TheLibrary() {
  static auto* const library = new Library;
  return *library;
}

StatePtr StateOf(Comm comm) {
  const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
  const auto found = TheLibrary().comms.find(comm);
  if (found == TheLibrary().comms.end()) std::abort();  // Used after it was aborted or destroyed.
  return found->second;
}

struct Group {
  int depth = 0;
  std::unique_ptr<Launch> launch;
  Stream stream = nullptr;
};
thread_local Group group;

void Start(std::unique_ptr<Launch> launch, Stream stream) {
  enqueue.load()(
      stream,
      [](void* argument) { std::unique_ptr<Launch>(static_cast<Launch*>(argument))->Run(); },
      launch.release());
}

Code Add(Comm comm, Stream stream, std::function<void(Launch&)> post) {
  auto launch = std::move(group.launch);
  if (launch == nullptr) launch = std::make_unique<Launch>();
  launch->state = StateOf(comm);
  launch->posts.push_back(std::move(post));
  if (group.depth == 0) {
    Start(std::move(launch), stream);
    return kInProgress;
  }
  group.launch = std::move(launch);
  group.stream = stream;
  return kSuccess;
}

Code Remove(Comm comm, bool abort) {
  const StatePtr state = StateOf(comm);
  if (abort) state->aborted = true;
  const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
  TheLibrary().comms.erase(comm);
  delete reinterpret_cast<char*>(comm);
  return kSuccess;
}

}  // namespace

extern "C" {

void processNcclSetEnqueue(Enqueue function) { enqueue = function; }

Code ncclGetVersion(int* version) {
  *version = 23203;
  return kSuccess;
}

const char* ncclGetErrorString(Code code) {
  return code == kSuccess ? "no error" : code == kInProgress ? "in progress" : "an error";
}

const char* ncclGetLastError(Comm) { return "stand-in"; }

Code ncclGetUniqueId(UniqueId* id) {
  const char* const folder = std::getenv("TEST_NCCL_FOLDER");
  std::string directory = std::string(folder == nullptr ? "/tmp" : folder) + "/basin-nccl-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return kSystemError;
  std::memset(id->bytes, 0, sizeof(id->bytes));
  std::memcpy(id->bytes, directory.data(), directory.size());
  return kSuccess;
}

Code ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return kInvalidArgument;
  auto state = std::make_shared<State>();
  state->directory = id.bytes;
  state->ranks = ranks;
  state->rank = rank;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    const auto path = [&](int sender, int receiver) {
      return state->directory + "/" + std::to_string(sender) + "-" + std::to_string(receiver);
    };
    state->to[peer] = OpenPipe(path(rank, peer));
    state->from[peer] = OpenPipe(path(peer, rank));
    if (state->to[peer] < 0 || state->from[peer] < 0) return kSystemError;
  }
  const int joined = open(state->Joined(rank).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (joined < 0) return kSystemError;
  close(joined);
  *comm = reinterpret_cast<Comm>(new char);
  const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
  TheLibrary().comms.emplace(*comm, std::move(state));
  return kInProgress;
}

Code ncclCommGetAsyncError(Comm comm, Code* error) {
  *error = StateOf(comm)->Formed() ? kSuccess : kInProgress;
  return kSuccess;
}

Code ncclGroupStart() {
  ++group.depth;
  return kSuccess;
}

Code ncclGroupEnd() {
  if (--group.depth > 0 || group.launch == nullptr) return kSuccess;
  Start(std::move(group.launch), group.stream);
  return kInProgress;
}

Code ncclSend(const void* from, size_t count, DataType type, int peer, Comm comm, Stream stream) {
  return Add(comm, stream, [=](Launch& launch) { launch.Send(peer, from, count * SizeOf(type)); });
}

Code ncclRecv(void* to, size_t count, DataType type, int peer, Comm comm, Stream stream) {
  return Add(comm, stream, [=](Launch& launch) { launch.Receive(peer, to, count * SizeOf(type)); });
}

Code ncclReduce(const void* from, void* to, size_t count, DataType type, RedOp op, int root,
                Comm comm, Stream stream) {
  return Add(comm, stream, [=](Launch& launch) {
    const State& state = *launch.state;
    const size_t bytes = count * SizeOf(type);
    if (state.rank != root) return launch.Send(root, from, bytes);
    auto reduction = std::make_unique<Reduction>();
    reduction->to = to;
    reduction->count = count;
    reduction->type = type;
    reduction->op = op;
    for (int rank = 0; rank < state.ranks; ++rank) {
      reduction->parts.emplace_back(bytes);
      if (rank == root) std::memcpy(reduction->parts.back().data(), from, bytes);
    }
    for (int rank = 0; rank < state.ranks; ++rank) {
      if (rank == root) continue;
      launch.Receive(rank, reduction->parts[static_cast<size_t>(rank)].data(), bytes);
    }
    launch.reductions.push_back(std::move(reduction));
  });
}

Code ncclBroadcast(const void* from, void* to, size_t count, DataType type, int root, Comm comm,
                   Stream stream) {
  return Add(comm, stream, [=](Launch& launch) {
    const State& state = *launch.state;
    const size_t bytes = count * SizeOf(type);
    if (state.rank != root) return launch.Receive(root, to, bytes);
    for (int rank = 0; rank < state.ranks; ++rank) {
      if (rank != root) launch.Send(rank, from, bytes);
    }
  });
}

Code ncclCommFinalize(Comm) { return kSuccess; }
Code ncclCommDestroy(Comm comm) { return Remove(comm, false); }
Code ncclCommAbort(Comm comm) { return Remove(comm, true); }

}  // extern "C"

}  // namespace basin::accelerator::nccl

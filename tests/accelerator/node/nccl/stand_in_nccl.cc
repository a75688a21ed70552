// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/accelerator/node/nccl/stand_in_nccl.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/accelerator/node/nccl/arithmetic.h"

namespace basin::accelerator::nccl {
namespace {

// ---- what exists; everything is guarded by `mutex`

struct Operation {
  enum class Kind { kSend, kRecv, kReduce, kBroadcast } kind = Kind::kSend;
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  DataType type = kUint8;
  RedOp op = kSum;
  int peer = 0;         // Or the root.
  uint64_t number = 0;  // That of the collective, or of the message between the two ranks.

  size_t bytes() const { return count * SizeOf(type); }
};

// What a rank has posted of an operation, and waits for.
struct Posted {
  Operation operation;
  bool done = false;
};

// The ranks that have the same unique id.
struct World {
  explicit World(int the_ranks) : ranks(the_ranks) {}

  const int ranks;
  std::set<int> joined;
  // By collective and rank.
  std::map<uint64_t, std::map<int, Posted*>> collectives;
  // By sender, receiver and number.
  std::map<std::tuple<int, int, uint64_t>, Posted*> messages;
};

struct CommState {
  std::shared_ptr<World> world;
  int rank = 0;
  bool aborted = false;
  Code broken = kSuccess;
  uint64_t collectives = 0;
  std::map<int, uint64_t> sent, received;  // Messages by peer.
};

struct Fault {
  std::string function;
  int rank = kAnyRank;
  int n = 0;
  enum class Kind { kFail, kHang, kHangForGood } kind = Kind::kFail;
  Code code = kSuccess;
};

struct Library {
  std::mutex mutex;
  std::condition_variable changed;

  void (*enqueue)(Stream stream, void (*run)(void*), void* argument) = nullptr;
  int version = 23203;
  std::vector<Fault> faults;
  std::map<std::string, int> calls;
  std::map<int, Code> broken;
  std::map<int, int> busy_looks;  // As often a look of a rank sees work in progress.
  int releases = 0;
  int waiting = 0;
  uint64_t ids = 0;
  std::map<std::string, std::shared_ptr<World>> worlds;
  std::map<Comm, std::shared_ptr<CommState>> comms;
};

// Never destroyed: streams may still have work when the process ends.
Library& TheLibrary() {
  static Library* const library = new Library;
  return *library;
}

struct Group {
  int depth = 0;
  std::vector<std::pair<Comm, Operation>> operations;
  Stream stream = nullptr;
};
thread_local Group group;

// REQUIRES: the mutex is held.
std::shared_ptr<CommState> StateOf(Comm comm) {
  const auto found = TheLibrary().comms.find(comm);
  if (found == TheLibrary().comms.end()) std::abort();  // Used after it was aborted or destroyed.
  return found->second;
}

// Counts a call, and carries out the fault that is planned for it. REQUIRES: the mutex is held.
Code Enter(std::unique_lock<std::mutex>& lock, const char* function, int rank, CommState* state) {
  Library& library = TheLibrary();
  ++library.calls[function];
  for (auto fault = library.faults.begin(); fault != library.faults.end(); ++fault) {
    if (fault->function != function) continue;
    if (fault->rank != kAnyRank && fault->rank != rank) continue;
    if (fault->n-- > 0) continue;
    const Fault now = *fault;
    library.faults.erase(fault);
    if (now.kind == Fault::Kind::kFail) return now.code;
    const int releases = library.releases;
    ++library.waiting;
    library.changed.notify_all();
    library.changed.wait(lock, [&] {
      const bool aborted =
          state != nullptr && state->aborted && now.kind != Fault::Kind::kHangForGood;
      return aborted || library.releases != releases;
    });
    --library.waiting;
    return kSystemError;
  }
  return kSuccess;
}

// ---- the work of a stream

// Operations of one call of ncclGroupEnd, or a single one.
struct Launch {
  std::shared_ptr<CommState> state;
  std::vector<Posted> operations;
};

// REQUIRES of these: the mutex is held. Each returns whether the operation has been done, and does
// it when its turn has come.

bool TryMessage(Launch& launch, Posted& posted) {
  World& world = *launch.state->world;
  const Operation& mine = posted.operation;
  if (posted.done || mine.kind == Operation::Kind::kSend) return posted.done;
  const auto sent = world.messages.find({mine.peer, launch.state->rank, mine.number});
  if (sent == world.messages.end()) return false;
  if (sent->second->operation.bytes() != mine.bytes()) std::abort();  // Would hang or corrupt.
  std::memcpy(mine.to, sent->second->operation.from, mine.bytes());
  sent->second->done = true;
  world.messages.erase(sent);
  return posted.done = true;
}

bool TryCollective(Launch& launch, Posted& posted) {
  World& world = *launch.state->world;
  const Operation& mine = posted.operation;
  if (posted.done) return true;
  if (launch.state->rank != mine.peer) return false;  // The root does it for all.
  auto& of_all = world.collectives[mine.number];
  if (static_cast<int>(of_all.size()) < world.ranks) return false;
  for (const auto& [rank, other] : of_all) {
    const bool same = other->operation.kind == mine.kind && other->operation.peer == mine.peer &&
                      other->operation.bytes() == mine.bytes();
    if (!same) std::abort();  // Would hang or corrupt.
  }
  if (mine.kind == Operation::Kind::kBroadcast) {
    for (const auto& [rank, other] : of_all) {
      std::memmove(other->operation.to, mine.from, mine.bytes());
    }
  } else {
    std::vector<char> sum(mine.bytes());
    std::memcpy(sum.data(), of_all[world.ranks - 1]->operation.from, mine.bytes());
    for (int rank = world.ranks - 2; rank >= 0; --rank) {
      CombineAll(sum.data(), of_all[rank]->operation.from, mine.count, mine.type, mine.op);
    }
    std::memcpy(mine.to, sum.data(), mine.bytes());
  }
  for (const auto& [rank, other] : of_all) other->done = true;
  world.collectives.erase(mine.number);
  return true;
}

void Post(Launch& launch, Posted& posted) {
  World& world = *launch.state->world;
  const Operation& mine = posted.operation;
  switch (mine.kind) {
    case Operation::Kind::kSend:
      world.messages[{launch.state->rank, mine.peer, mine.number}] = &posted;
      return;
    case Operation::Kind::kRecv:
      return;
    case Operation::Kind::kReduce:
    case Operation::Kind::kBroadcast:
      world.collectives[mine.number][launch.state->rank] = &posted;
      return;
  }
}

// After an abort nobody may find what this rank has posted.
void Withdraw(Launch& launch) {
  World& world = *launch.state->world;
  for (Posted& posted : launch.operations) {
    const Operation& mine = posted.operation;
    const auto sent = world.messages.find({launch.state->rank, mine.peer, mine.number});
    if (sent != world.messages.end() && sent->second == &posted) world.messages.erase(sent);
    const auto collective = world.collectives.find(mine.number);
    if (collective == world.collectives.end()) continue;
    const auto own = collective->second.find(launch.state->rank);
    if (own != collective->second.end() && own->second == &posted) collective->second.erase(own);
  }
}

void RunLaunch(void* argument) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(argument));
  Library& library = TheLibrary();
  std::unique_lock<std::mutex> lock(library.mutex);
  if (launch->state->aborted) return;
  for (Posted& posted : launch->operations) Post(*launch, posted);
  library.changed.notify_all();
  library.changed.wait(lock, [&] {
    if (launch->state->aborted) return true;
    bool all = true;
    bool progress = false;
    for (Posted& posted : launch->operations) {
      const bool collective = posted.operation.kind == Operation::Kind::kReduce ||
                              posted.operation.kind == Operation::Kind::kBroadcast;
      const bool before = posted.done;
      const bool done = collective ? TryCollective(*launch, posted) : TryMessage(*launch, posted);
      progress = progress || (done && !before);
      all = all && done;
    }
    if (progress) library.changed.notify_all();
    return all;
  });
  Withdraw(*launch);
}

// REQUIRES: the mutex is not held: a stream may run it at once.
void Enqueue(std::shared_ptr<CommState> state, std::vector<Operation> operations, Stream stream) {
  auto launch = std::make_unique<Launch>();
  launch->state = std::move(state);
  for (Operation& operation : operations) launch->operations.push_back({operation, false});
  TheLibrary().enqueue(stream, RunLaunch, launch.release());
}

Code Add(const char* function, Comm comm, Operation operation, Stream stream) {
  Library& library = TheLibrary();
  std::unique_lock<std::mutex> lock(library.mutex);
  const std::shared_ptr<CommState> state = StateOf(comm);
  const Code code = Enter(lock, function, state->rank, state.get());
  if (code != kSuccess) return code;
  switch (operation.kind) {
    case Operation::Kind::kSend:
      operation.number = state->sent[operation.peer]++;
      break;
    case Operation::Kind::kRecv:
      operation.number = state->received[operation.peer]++;
      break;
    default:
      operation.number = state->collectives++;
  }
  if (group.depth > 0) {
    group.operations.emplace_back(comm, operation);
    group.stream = stream;
    return kSuccess;
  }
  lock.unlock();
  Enqueue(state, {operation}, stream);
  return kInProgress;
}

Code Remove(const char* function, Comm comm, bool abort) {
  Library& library = TheLibrary();
  std::unique_lock<std::mutex> lock(library.mutex);
  const std::shared_ptr<CommState> state = StateOf(comm);
  if (abort) {
    state->aborted = true;
    library.changed.notify_all();
  }
  const Code code = Enter(lock, function, state->rank, state.get());
  if (code != kSuccess) return code;
  library.comms.erase(comm);
  delete reinterpret_cast<char*>(comm);
  return kSuccess;
}

void Plan(const char* function, int rank, int n, Fault::Kind kind, Code code) {
  Library& library = TheLibrary();
  const std::lock_guard<std::mutex> lock(library.mutex);
  library.faults.push_back({function, rank, n, kind, code});
}

}  // namespace

extern "C" {

Code ncclGetVersion(int* version) {
  const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
  *version = TheLibrary().version;
  return kSuccess;
}

const char* ncclGetErrorString(Code code) {
  switch (code) {
    case kSuccess:
      return "no error";
    case kUnhandledCudaError:
      return "unhandled cuda error";
    case kSystemError:
      return "unhandled system error";
    case kRemoteError:
      return "remote process exited or there was a network error";
    case kInProgress:
      return "NCCL operation in progress";
    default:
      return "another error";
  }
}

const char* ncclGetLastError(Comm) { return "stand-in"; }

Code ncclGetUniqueId(UniqueId* id) {
  Library& library = TheLibrary();
  std::unique_lock<std::mutex> lock(library.mutex);
  const Code code = Enter(lock, "ncclGetUniqueId", kAnyRank, nullptr);
  if (code != kSuccess) return code;
  std::memset(id->bytes, 0, sizeof(id->bytes));
  const std::string text = "id " + std::to_string(++library.ids);
  std::memcpy(id->bytes, text.data(), text.size());
  return kSuccess;
}

Code ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return kInvalidArgument;
  Library& library = TheLibrary();
  std::unique_lock<std::mutex> lock(library.mutex);
  const Code code = Enter(lock, "ncclCommInitRankConfig", rank, nullptr);
  if (code != kSuccess) return code;
  std::shared_ptr<World>& world = library.worlds[std::string(id.bytes, sizeof(id.bytes))];
  if (world == nullptr) world = std::make_shared<World>(ranks);
  const bool fits = world->ranks == ranks && rank >= 0 && rank < ranks;
  if (!fits || !world->joined.insert(rank).second) return kInvalidUsage;
  auto state = std::make_shared<CommState>();
  state->world = world;
  state->rank = rank;
  *comm = reinterpret_cast<Comm>(new char);
  library.comms.emplace(*comm, std::move(state));
  return kInProgress;
}

Code ncclCommGetAsyncError(Comm comm, Code* error) {
  Library& library = TheLibrary();
  std::unique_lock<std::mutex> lock(library.mutex);
  const std::shared_ptr<CommState> state = StateOf(comm);
  const Code code = Enter(lock, "ncclCommGetAsyncError", state->rank, state.get());
  if (code != kSuccess) return code;
  const auto broken = library.broken.find(state->rank);
  int& busy_looks = library.busy_looks[state->rank];
  const bool formed =
      static_cast<int>(state->world->joined.size()) == state->world->ranks && busy_looks == 0;
  if (busy_looks > 0) --busy_looks;
  *error = broken != library.broken.end() ? broken->second : formed ? kSuccess : kInProgress;
  return kSuccess;
}

Code ncclGroupStart() {
  ++group.depth;
  return kSuccess;
}

Code ncclGroupEnd() {
  if (--group.depth > 0) return kSuccess;
  std::vector<std::pair<Comm, Operation>> added;
  added.swap(group.operations);
  if (added.empty()) return kSuccess;
  std::shared_ptr<CommState> state;
  {
    std::unique_lock<std::mutex> lock(TheLibrary().mutex);
    state = StateOf(added.front().first);
    const Code code = Enter(lock, "ncclGroupEnd", state->rank, state.get());
    if (code != kSuccess) return code;
  }
  std::vector<Operation> operations;
  for (const auto& [comm, operation] : added) operations.push_back(operation);
  Enqueue(std::move(state), std::move(operations), group.stream);
  return kInProgress;
}

Code ncclSend(const void* from, size_t count, DataType type, int peer, Comm comm, Stream stream) {
  Operation operation;
  operation.kind = Operation::Kind::kSend;
  operation.from = from;
  operation.count = count;
  operation.type = type;
  operation.peer = peer;
  return Add("ncclSend", comm, operation, stream);
}

Code ncclRecv(void* to, size_t count, DataType type, int peer, Comm comm, Stream stream) {
  Operation operation;
  operation.kind = Operation::Kind::kRecv;
  operation.to = to;
  operation.count = count;
  operation.type = type;
  operation.peer = peer;
  return Add("ncclRecv", comm, operation, stream);
}

Code ncclReduce(const void* from, void* to, size_t count, DataType type, RedOp op, int root,
                Comm comm, Stream stream) {
  return Add("ncclReduce", comm, {Operation::Kind::kReduce, from, to, count, type, op, root, 0},
             stream);
}

Code ncclBroadcast(const void* from, void* to, size_t count, DataType type, int root, Comm comm,
                   Stream stream) {
  return Add("ncclBroadcast", comm,
             {Operation::Kind::kBroadcast, from, to, count, type, kSum, root, 0}, stream);
}

Code ncclCommFinalize(Comm comm) {
  std::unique_lock<std::mutex> lock(TheLibrary().mutex);
  const std::shared_ptr<CommState> state = StateOf(comm);
  return Enter(lock, "ncclCommFinalize", state->rank, state.get());
}

Code ncclCommDestroy(Comm comm) { return Remove("ncclCommDestroy", comm, false); }

Code ncclCommAbort(Comm comm) { return Remove("ncclCommAbort", comm, true); }

const StandInControl* standInNcclControl() {
  static const StandInControl control = {
      [](void (*enqueue)(Stream, void (*)(void*), void*)) {
        const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
        TheLibrary().enqueue = enqueue;
      },
      [](int version) {
        const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
        TheLibrary().version = version;
      },
      [](const char* function, int rank, int n, Code code) {
        Plan(function, rank, n, Fault::Kind::kFail, code);
      },
      [](const char* function, int rank, int n) {
        Plan(function, rank, n, Fault::Kind::kHang, kSuccess);
      },
      [](const char* function, int rank, int n) {
        Plan(function, rank, n, Fault::Kind::kHangForGood, kSuccess);
      },
      [] {
        const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
        ++TheLibrary().releases;
        TheLibrary().changed.notify_all();
      },
      [](int rank, Code code) {
        const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
        TheLibrary().broken[rank] = code;
      },
      [](int rank, int looks) {
        const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
        TheLibrary().busy_looks[rank] = looks;
      },
      [](const char* function) {
        const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
        return TheLibrary().calls[function];
      },
      [] {
        const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
        return static_cast<int>(TheLibrary().comms.size());
      },
      [] {
        const std::lock_guard<std::mutex> lock(TheLibrary().mutex);
        return TheLibrary().waiting;
      },
      [] {
        Library& library = TheLibrary();
        const std::lock_guard<std::mutex> lock(library.mutex);
        if (library.waiting > 0) std::abort();
        for (const auto& [comm, state] : library.comms) delete reinterpret_cast<char*>(comm);
        library.comms.clear();
        library.version = 23203;
        library.faults.clear();
        library.calls.clear();
        library.broken.clear();
        library.busy_looks.clear();
        library.worlds.clear();
      },
  };
  return &control;
}

}  // extern "C"

}  // namespace basin::accelerator::nccl

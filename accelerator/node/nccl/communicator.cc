// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/nccl/communicator.h"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "accelerator/node/nccl/board.h"
#include "runtime/signals_blocked.h"

namespace basin::accelerator::nccl {
namespace {

using std::chrono::milliseconds;

// For how long the state of a communicator is looked at without a pause while a call is in
// progress: NCCL gives most work to the device within a part of this. Then, and while work runs, it
// is looked at so often.
constexpr std::chrono::microseconds kSpin{200};
constexpr std::chrono::microseconds kPollInterval{500};
constexpr milliseconds kLookInterval{50};
// How long the threads may take to end once it is quiet.
constexpr milliseconds kEndPatience{500};

std::string Seconds(milliseconds time) {
  return absl::StrCat(static_cast<double>(time.count()) / 1000, " s");
}

absl::Status ToStatus(const std::optional<Failure>& failure) {
  return failure ? absl::UnavailableError(failure->message) : absl::OkStatus();
}

}  // namespace

// What is given to a communicator: a bucket, or parts.
struct Communicator::Command {
  std::vector<GroupTensor> tensors;
  std::vector<GroupBytes> parts;
  Order order;
};

// The resources of a communicator, and what its two threads do. One gives work to NCCL and the
// device. The other one watches it, and aborts NCCL's part: it is the only one that waits for
// nothing else, so that a call that does not return has an end.
class Communicator::Threads {
 public:
  Threads(std::shared_ptr<const Library> library, std::shared_ptr<Device> device,
          const CommunicatorOptions& options)
      : board(std::make_shared<Board>(options.quiet_within)),
        library_(std::move(library)),
        device_(std::move(device)),
        options_(options) {}
  ~Threads() {
    bool idle = false;
    {
      MutexLock lock(board->mutex);
      idle = board->quiet;
    }
    if (idle) return;
    // The device may still use them.
    (void)queue_.release();
    (void)scratch_.release();
    (void)facts_.release();
  }

  absl::Status Allocate() {
    auto scratch = device_->AllocateOnDevice(options_.scratch_bytes);
    if (!scratch.ok()) return absl::UnavailableError(scratch.failure().message);
    scratch_ = std::move(scratch).value();
    auto facts = device_->AllocateOnDevice(sizeof(kernels::cuda::DeviceFacts));
    if (!facts.ok()) return absl::UnavailableError(facts.failure().message);
    facts_ = std::move(facts).value();
    auto queue = device_->MakeQueue();
    if (!queue.ok()) return absl::UnavailableError(queue.failure().message);
    queue_ = std::move(queue).value();
    return absl::OkStatus();
  }

  const Position& position() const { return options_.position; }
  milliseconds work_within() const { return options_.work_within; }

  void Add(Command command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(board->mutex) {
    waiting_.push_back(std::move(command));
  }

  void Work();
  void Watch();

  const std::shared_ptr<Board> board;

 private:
  using MaybeCode = std::optional<Code>;

  // Makes a call of NCCL unless the communicator has failed, also meanwhile; then there is no code.
  template <typename Function>
  MaybeCode Call(const char* name, Function function);
  // The two halves of a call.
  void Begin(const char* name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(board->mutex);
  MaybeCode Returned(Code code);
  // A call whose work NCCL may do behind our back; returns when that is done, or at `until`.
  template <typename Function>
  absl::Status CallAndPoll(const char* name, std::optional<SteadyTime> until, Function function);
  absl::Status Poll(const char* name, std::optional<SteadyTime> until);
  absl::Status WhyNot(const char* name, const MaybeCode& code);
  absl::Status Failed();

  absl::Status Form();
  // Carries out commands until the communicator fails or is closed.
  absl::Status Serve();
  absl::Status Look();
  absl::Status Execute(const Command& command);
  absl::Status Reduce(const std::vector<GroupTensor>& tensors);
  absl::Status ReduceStep(const std::vector<GroupTensor>& tensors, const Step& step);
  absl::Status Gather(const std::vector<PieceWork>& pieces);
  absl::Status ReduceFast(const std::vector<PieceWork>& pieces);
  absl::Status Broadcast(const std::vector<GroupBytes>& parts);
  // `add` makes the calls of one group.
  template <typename Function>
  absl::Status InGroup(const char* name, Function add);
  absl::Status Finalize();
  // After a failure: waits until nothing runs on the device.
  void AwaitQuiet();
  // On the thread that watches. Whether it has been aborted.
  bool AbortFromHere(Comm comm);

  const std::shared_ptr<const Library> library_;
  const std::shared_ptr<Device> device_;
  std::unique_ptr<Queue> queue_;
  const CommunicatorOptions options_;
  Memory scratch_;
  Memory facts_;  // Those of the launches, which are not reported.

  std::deque<Command> waiting_ ABSL_GUARDED_BY(board->mutex);
  // Events of the work that has not ended. A callback of the runtime must not release them.
  std::deque<EventPtr> events_;
  Comm comm_ = nullptr;  // Written by the working thread before `watched_`.
  Comm watched_ ABSL_GUARDED_BY(board->mutex) = nullptr;  // What the watch aborts.
};

// ---- calls

template <typename Function>
Communicator::Threads::MaybeCode Communicator::Threads::Call(const char* name, Function function) {
  {
    MutexLock lock(board->mutex);
    if (!board->failure.ok()) return std::nullopt;
    Begin(name);
  }
  return Returned(function());
}

void Communicator::Threads::Begin(const char* name) {
  board->calling = name;
  board->call_until = SteadyNow() + options_.call_within;
  board->changed.NotifyAll();
}

Communicator::Threads::MaybeCode Communicator::Threads::Returned(Code code) {
  MutexLock lock(board->mutex);
  board->calling = nullptr;
  board->changed.NotifyAll();
  if (!board->failure.ok()) return std::nullopt;
  return code;
}

absl::Status Communicator::Threads::Failed() {
  MutexLock lock(board->mutex);
  return board->failure;
}

absl::Status Communicator::Threads::WhyNot(const char* name, const MaybeCode& code) {
  if (!code) return Failed();
  if (*code == kSuccess || *code == kInProgress) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(std::string(device_->name()), ": ", library_->Describe(name, *code)));
}

absl::Status Communicator::Threads::Poll(const char* name, std::optional<SteadyTime> until) {
  const SteadyTime spin_until = SteadyNow() + kSpin;
  while (true) {
    Code state = kSuccess;
    // All looks without a pause are one call, because a call wakes the thread that watches.
    const MaybeCode code = Call("ncclCommGetAsyncError", [&] {
      Code looked = kSuccess;
      do {
        looked = library_->functions().CommGetAsyncError(comm_, &state);
      } while (looked == kSuccess && state == kInProgress && SteadyNow() < spin_until);
      return looked;
    });
    if (absl::Status status = WhyNot("ncclCommGetAsyncError", code); !status.ok()) return status;
    if (state != kInProgress) return WhyNot(name, state);
    MutexLock lock(board->mutex);
    if (!board->failure.ok()) return board->failure;
    if (until && SteadyNow() >= *until) return absl::DeadlineExceededError("");
    board->WaitFor(kPollInterval);
  }
}

template <typename Function>
absl::Status Communicator::Threads::CallAndPoll(const char* name, std::optional<SteadyTime> until,
                                                Function function) {
  const MaybeCode code = Call(name, function);
  if (absl::Status status = WhyNot(name, code); !status.ok()) return status;
  return *code == kInProgress ? Poll(name, until) : absl::OkStatus();
}

template <typename Function>
absl::Status Communicator::Threads::InGroup(const char* name, Function add) {
  const auto& nccl = library_->functions();
  absl::Status status = WhyNot("ncclGroupStart", Call("ncclGroupStart", nccl.GroupStart));
  if (!status.ok()) return status;
  status = add();
  // The state of a group belongs to the thread, which ends it unless the communicator has failed.
  absl::Status ended = CallAndPoll(name, std::nullopt, nccl.GroupEnd);
  return status.ok() ? ended : status;
}

// ---- the thread that works

void Communicator::Threads::Work() {
  absl::Status status = ToStatus(queue_->UseOnThisThread());
  if (status.ok()) status = Form();
  if (status.ok()) status = Serve();
  if (status.ok()) status = Finalize();
  if (!status.ok()) {
    board->Fail(std::move(status));
    AwaitQuiet();
  }
  MutexLock lock(board->mutex);
  board->work_over = true;
  board->changed.NotifyAll();
}

absl::Status Communicator::Threads::Form() {
  const auto until = SteadyNow() + options_.form_within;
  Config config;
  const MaybeCode code = Call("ncclCommInitRankConfig", [&] {
    return library_->functions().CommInitRankConfig(&comm_, position().size, options_.id,
                                                    position().index, &config);
  });
  bool in_time = false;
  {
    MutexLock lock(board->mutex);
    in_time = code && board->failure.ok();
    if (in_time) watched_ = comm_;
  }
  if (!in_time && comm_ != nullptr) {
    // The watch may have looked for it before.
    (void)library_->functions().CommAbort(comm_);
  }
  absl::Status status = WhyNot("ncclCommInitRankConfig", code);
  if (status.ok()) status = Poll("ncclCommInitRankConfig", until);
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the communicator of ", position().size, " ranks was not formed within ",
                     Seconds(options_.form_within), ": a rank has not come"));
  }
  if (!status.ok()) return status;
  MutexLock lock(board->mutex);
  board->formed = true;
  board->changed.NotifyAll();
  return absl::OkStatus();
}

absl::Status Communicator::Threads::Serve() {
  while (true) {
    std::optional<Command> command;
    {
      MutexLock lock(board->mutex);
      if (!board->failure.ok()) return board->failure;
      if (!waiting_.empty()) {
        command = std::move(waiting_.front());
        waiting_.pop_front();
      } else if (board->ended < board->added) {
        board->WaitFor(kLookInterval);
      } else if (board->closing) {
        return absl::OkStatus();
      } else {
        board->changed.Wait(board->mutex);
      }
    }
    if (absl::Status status = command ? Execute(*command) : Look(); !status.ok()) return status;
    if (!command) continue;
    MutexLock lock(board->mutex);
    ++board->added;
    board->changed.NotifyAll();
  }
}

absl::Status Communicator::Threads::Look() {
  Code state = kSuccess;
  const MaybeCode code = Call("ncclCommGetAsyncError", [&] {
    return library_->functions().CommGetAsyncError(comm_, &state);
  });
  if (absl::Status status = WhyNot("ncclCommGetAsyncError", code); !status.ok()) return status;
  if (absl::Status status = WhyNot("a peer's work", state); !status.ok()) return status;
  return ToStatus(queue_->Check());
}

absl::Status Communicator::Threads::Execute(const Command& command) {
  events_.push_back(command.order.after);
  uint64_t running = 0;
  {
    MutexLock lock(board->mutex);
    running = board->added + 1 - board->ended;
  }
  // Not under the mutex: this may call the runtime, whose callbacks wait for the mutex.
  while (events_.size() > running) events_.pop_front();
  if (command.order.after != nullptr) {
    auto failure = queue_->After(command.order.after.get());
    if (failure) return ToStatus(failure);
  }
  auto failure = queue_->Notify([known = board] { known->OnReached(); });
  if (failure) return ToStatus(failure);
  absl::Status status =
      command.tensors.empty() ? Broadcast(command.parts) : Reduce(command.tensors);
  if (!status.ok()) return status;
  if (command.order.before) {
    if (auto refused = queue_->Before(*command.order.before)) return ToStatus(refused);
  }
  return ToStatus(queue_->Notify([known = board] { known->OnEnded(); }));
}

absl::Status Communicator::Threads::Reduce(const std::vector<GroupTensor>& tensors) {
  for (const Step& step : StepsOf(tensors, options_.mode, position(), options_.scratch_bytes)) {
    if (absl::Status status = ReduceStep(tensors, step); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Communicator::Threads::ReduceStep(const std::vector<GroupTensor>& tensors,
                                               const Step& step) {
  std::vector<PieceWork> pieces;
  pieces.reserve(step.pieces.size());
  for (const Piece& piece : step.pieces) {
    pieces.emplace_back(tensors[piece.tensor], piece, position(), scratch_.get(),
                        static_cast<kernels::cuda::DeviceFacts*>(facts_.get()));
  }
  if (step.mode == GroupMode::kFast) return ReduceFast(pieces);
  if (absl::Status status = Gather(pieces); !status.ok()) return status;
  if (!position().leads()) return absl::OkStatus();
  for (const PieceWork& piece : pieces) {
    if (auto failure = queue_->Run(piece.Fold())) return ToStatus(failure);
  }
  return absl::OkStatus();
}

absl::Status Communicator::Threads::Gather(const std::vector<PieceWork>& pieces) {
  std::vector<PieceWork::Message> messages;
  for (const PieceWork& piece : pieces) {
    const auto of_piece = piece.Messages();
    messages.insert(messages.end(), of_piece.begin(), of_piece.end());
  }
  if (messages.empty()) return absl::OkStatus();
  const auto& nccl = library_->functions();
  return InGroup("ncclGroupEnd of a gather", [&]() -> absl::Status {
    for (const PieceWork::Message& message : messages) {
      const char* const name = position().leads() ? "ncclRecv" : "ncclSend";
      const MaybeCode code = Call(name, [&] {
        return position().leads() ? nccl.Recv(message.data, message.bytes, kUint8, message.peer,
                                              comm_, queue_->stream())
                                  : nccl.Send(message.data, message.bytes, kUint8, message.peer,
                                              comm_, queue_->stream());
      });
      if (absl::Status status = WhyNot(name, code); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

absl::Status Communicator::Threads::ReduceFast(const std::vector<PieceWork>& pieces) {
  for (const PieceWork& piece : pieces) {
    const auto scale = piece.Scale();
    if (!scale) continue;
    if (auto failure = queue_->Run(*scale)) return ToStatus(failure);
  }
  const auto& nccl = library_->functions();
  absl::Status status = InGroup("ncclGroupEnd of a reduction", [&]() -> absl::Status {
    for (const PieceWork& piece : pieces) {
      const PieceWork::Collective all = piece.Reduction();
      const MaybeCode code = Call("ncclReduce", [&] {
        return nccl.Reduce(all.from, all.to, all.count, all.type, all.op, position().leader, comm_,
                           queue_->stream());
      });
      if (absl::Status refused = WhyNot("ncclReduce", code); !refused.ok()) return refused;
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  for (const PieceWork& piece : pieces) {
    const auto finish = piece.Finish();
    if (!finish) continue;
    if (auto failure = queue_->Run(*finish)) return ToStatus(failure);
  }
  return absl::OkStatus();
}

absl::Status Communicator::Threads::Broadcast(const std::vector<GroupBytes>& parts) {
  const auto& nccl = library_->functions();
  for (size_t first = 0; first < parts.size(); first += kMostMessages) {
    const size_t end = std::min(first + kMostMessages, parts.size());
    absl::Status ended = InGroup("ncclGroupEnd of a broadcast", [&]() -> absl::Status {
      for (size_t i = first; i < end; ++i) {
        const GroupBytes& part = parts[i];
        if (part.bytes == 0) continue;
        const MaybeCode code = Call("ncclBroadcast", [&] {
          return nccl.Broadcast(part.data, part.data, part.bytes, kUint8, position().leader, comm_,
                                queue_->stream());
        });
        if (absl::Status status = WhyNot("ncclBroadcast", code); !status.ok()) return status;
      }
      return absl::OkStatus();
    });
    if (!ended.ok()) return ended;
  }
  return absl::OkStatus();
}

absl::Status Communicator::Threads::Finalize() {
  const auto& nccl = library_->functions();
  absl::Status status = CallAndPoll("ncclCommFinalize", SteadyNow() + options_.quiet_within,
                                    [&] { return nccl.CommFinalize(comm_); });
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(
        absl::StrCat("ncclCommFinalize has not ended within ", Seconds(options_.quiet_within)));
  }
  if (!status.ok()) return status;
  {
    MutexLock lock(board->mutex);
    if (!board->failure.ok()) return board->failure;
    watched_ = nullptr;
    board->quiet = true;
    // From here on nobody else destroys it, whatever fails.
    Begin("ncclCommDestroy");
  }
  return WhyNot("ncclCommDestroy", Returned(nccl.CommDestroy(comm_)));
}

void Communicator::Threads::AwaitQuiet() {
  {
    MutexLock lock(board->mutex);
    const auto until = board->failed_at + options_.quiet_within;
    while (!board->aborted && !board->watch_over && SteadyNow() < until) {
      board->changed.WaitUntil(board->mutex, until);
    }
    if (!board->aborted) return;
  }
  const auto failure = queue_->Notify([known = board] {
    MutexLock lock(known->mutex);
    known->quiet = true;
    known->changed.NotifyAll();
  });
  if (failure) return;
  MutexLock lock(board->mutex);
  board->WaitUntilQuiet();
}

// ---- the thread that watches

bool Communicator::Threads::AbortFromHere(Comm comm) {
  // Only now, because this may not return either. Without the device NCCL may still succeed.
  (void)queue_->UseOnThisThread();
  return library_->functions().CommAbort(comm) == kSuccess;
}

void Communicator::Threads::Watch() {
  // The working thread gives up first, unless a call of the device or of NCCL does not return.
  const auto formed_until = board->started_at + options_.form_within + options_.call_within;
  board->mutex.Lock();
  while (board->failure.ok() && !board->work_over) {
    auto until = SteadyNow() + std::chrono::hours(1);
    if (!board->formed) until = std::min(until, formed_until);
    if (board->calling != nullptr) until = std::min(until, board->call_until);
    const auto since = board->RunsSince();
    if (since) until = std::min(until, *since + options_.work_within);
    if (SteadyNow() < until) {
      board->changed.WaitUntil(board->mutex, until);
    } else if (board->calling != nullptr && SteadyNow() >= board->call_until) {
      board->FailLocked(absl::DeadlineExceededError(
          absl::StrCat(std::string(device_->name()), ": ", board->calling,
                       " has not returned within ", Seconds(options_.call_within))));
    } else if (since) {
      board->FailLocked(absl::DeadlineExceededError(absl::StrCat(
          std::string(device_->name()), ": work of the node's ranks has not ended within ",
          Seconds(options_.work_within), ": a rank has not come, or hangs")));
    } else if (!board->formed) {
      board->FailLocked(absl::DeadlineExceededError(
          absl::StrCat(std::string(device_->name()), ": the communicator was not formed within ",
                       Seconds(options_.form_within + options_.call_within),
                       ": a call of the device or of NCCL takes too long")));
    }
  }
  if (!board->failure.ok()) {
    // An abort frees what a call uses, so it waits for the call to return. It comes in time for
    // what runs to end.
    const auto abort_at = std::min(board->call_until, board->failed_at + options_.quiet_within / 2);
    while (board->calling != nullptr && SteadyNow() < abort_at) {
      board->changed.WaitUntil(board->mutex, abort_at);
    }
    const Comm comm = std::exchange(watched_, nullptr);
    board->mutex.Unlock();
    const bool aborted = comm == nullptr || AbortFromHere(comm);
    board->mutex.Lock();
    board->aborted = aborted;
  }
  board->watch_over = true;
  board->changed.NotifyAll();
  board->mutex.Unlock();
}

// ---- work

absl::Status Communicator::Work::WaitUntilAdded() const {
  if (!refused_.ok()) return refused_;
  MutexLock lock(board_->mutex);
  while (board_->added <= number_ && board_->failure.ok()) board_->changed.Wait(board_->mutex);
  return board_->added > number_ ? absl::OkStatus() : board_->failure;
}

absl::Status Communicator::Work::Wait() const {
  while (true) {
    std::optional<absl::Status> status = WaitUntil(SteadyNow() + std::chrono::hours(1));
    if (status) return *std::move(status);
  }
}

std::optional<absl::Status> Communicator::Work::WaitUntil(SteadyTime until) const {
  MutexLock lock(board_->mutex);
  if (!refused_.ok()) {
    // The answer of quiet() does not change after this.
    if (!board_->failure.ok()) board_->WaitUntilQuiet();
    return refused_;
  }
  while (board_->ended <= number_ && board_->failure.ok() && SteadyNow() < until) {
    board_->changed.WaitUntil(board_->mutex, until);
  }
  if (board_->ended > number_) return absl::OkStatus();
  if (board_->failure.ok()) return std::nullopt;
  board_->WaitUntilQuiet();
  return board_->failure;
}

// ---- the communicator

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Start(
    std::shared_ptr<const Library> library, std::shared_ptr<Device> device,
    const CommunicatorOptions& options) {
  const Position& position = options.position;
  if (position.size < 1 || position.size > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", position.size, " ranks: a node has 1 to ", kMostRanks));
  }
  const bool valid = position.index >= 0 && position.index < position.size &&
                     position.leader >= 0 && position.leader < position.size;
  if (!valid) {
    return absl::InvalidArgumentError(absl::StrCat("position ", position.index, " and leader ",
                                                   position.leader, " are no positions of ",
                                                   position.size));
  }
  if (options.scratch_bytes < LeastScratchBytes()) {
    return absl::InvalidArgumentError(absl::StrCat("scratch memory of ", options.scratch_bytes,
                                                   " bytes: at least ", LeastScratchBytes(),
                                                   " are needed"));
  }
  auto threads = std::make_shared<Threads>(std::move(library), std::move(device), options);
  if (absl::Status status = threads->Allocate(); !status.ok()) {
    MutexLock lock(threads->board->mutex);
    threads->board->quiet = true;
    return status;
  }
  return std::unique_ptr<Communicator>(new Communicator(std::move(threads)));
}

Communicator::Communicator(std::shared_ptr<Threads> threads) : threads_(std::move(threads)) {
  MutexLock lock(end_mutex_);
  // Each thread keeps what it uses, because it may be left behind.
  const SignalsBlocked blocked;
  work_ = std::thread([kept = threads_] {
    pthread_setname_np(pthread_self(), "basin-nccl");
    kept->Work();
  });
  watch_ = std::thread([kept = threads_] {
    pthread_setname_np(pthread_self(), "basin-nccl-w");
    kept->Watch();
  });
}

Communicator::~Communicator() {
  MutexLock lock(end_mutex_);
  if (!work_.joinable()) return;
  Abort(absl::CancelledError("the communicator was dropped"));
  End();
}

absl::Status Communicator::WaitUntilFormed() {
  Board& board = *threads_->board;
  MutexLock lock(board.mutex);
  while (!board.formed && board.failure.ok()) board.changed.Wait(board.mutex);
  return board.failure;
}

Communicator::Work Communicator::Reduce(std::vector<GroupTensor> tensors, Order order) {
  absl::Status refused = CheckPlans(tensors, threads_->position());
  if (!refused.ok()) return {threads_->board, 0, std::move(refused)};
  absl::Status wrong = CheckOwnPart(tensors, threads_->position());
  return Give({std::move(tensors), {}, std::move(order)}, std::move(wrong));
}

Communicator::Work Communicator::Broadcast(std::vector<GroupBytes> parts, Order order) {
  return Give({{}, std::move(parts), std::move(order)}, absl::OkStatus());
}

Communicator::Work Communicator::Give(Command command, absl::Status wrong) {
  MutexLock lock(threads_->board->mutex);
  if (threads_->board->failure.ok() && threads_->board->closing) {
    return {threads_->board, 0, absl::FailedPreconditionError("the communicator is closed")};
  }
  if (threads_->board->given - threads_->board->ended >= kMostWork) {
    wrong = absl::ResourceExhaustedError(
        absl::StrCat(kMostWork, " works of the communicator have not ended"));
  }
  if (!wrong.ok()) threads_->board->FailLocked(std::move(wrong));
  if (!threads_->board->failure.ok()) return {threads_->board, 0, threads_->board->failure};
  threads_->Add(std::move(command));
  threads_->board->changed.NotifyAll();
  return {threads_->board, threads_->board->given++, absl::OkStatus()};
}

void Communicator::Abort(absl::Status why) { threads_->board->Fail(std::move(why)); }

absl::Status Communicator::Close() {
  MutexLock end_lock(end_mutex_);
  if (!work_.joinable()) return status();
  {
    Board& board = *threads_->board;
    MutexLock lock(board.mutex);
    board.closing = true;
    board.changed.NotifyAll();
    // The trainer's own work may never end.
    const auto until = SteadyNow() + threads_->work_within();
    while (board.failure.ok() && !board.work_over) {
      if (SteadyNow() >= until) {
        board.FailLocked(absl::DeadlineExceededError(
            absl::StrCat("the communicator was not closed within ",
                         Seconds(threads_->work_within()), ": its work has not ended")));
      } else {
        board.changed.WaitUntil(board.mutex, until);
      }
    }
  }
  End();
  return status();
}

void Communicator::End() {
  Board& board = *threads_->board;
  bool over = false;
  {
    MutexLock lock(board.mutex);
    // It may fail while it is waited for.
    const auto patient = [&board]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(board.mutex) {
      return board.failure.ok() ||
             SteadyNow() < board.failed_at + board.quiet_within + kEndPatience;
    };
    while (!board.Over() && patient()) board.WaitFor(kLookInterval);
    over = board.Over();
  }
  for (std::thread* const thread : {&work_, &watch_}) {
    if (over) {
      thread->join();
    } else {
      thread->detach();  // It waits in a call of NCCL that does not return.
    }
  }
}

absl::Status Communicator::status() const {
  MutexLock lock(threads_->board->mutex);
  return threads_->board->failure;
}

bool Communicator::quiet() const {
  MutexLock lock(threads_->board->mutex);
  return threads_->board->quiet;
}

absl::StatusOr<UniqueId> MakeUniqueId(const std::shared_ptr<const Library>& library,
                                      milliseconds within) {
  struct Answer {
    Mutex mutex;
    Condition changed;
    bool here = false;
    Code code = kSuccess;
    UniqueId id = {};
  };
  const auto answer = std::make_shared<Answer>();
  std::thread thread;
  {
    const SignalsBlocked blocked;
    thread = std::thread([library, answer] {
      UniqueId id = {};
      const Code code = library->functions().GetUniqueId(&id);
      MutexLock lock(answer->mutex);
      answer->here = true;
      answer->code = code;
      answer->id = id;
      answer->changed.NotifyAll();
    });
  }
  {
    const auto until = SteadyNow() + within;
    MutexLock lock(answer->mutex);
    while (!answer->here && SteadyNow() < until) answer->changed.WaitUntil(answer->mutex, until);
    if (!answer->here) {
      thread.detach();
      return absl::DeadlineExceededError(
          absl::StrCat("ncclGetUniqueId has not returned within ", Seconds(within)));
    }
  }
  thread.join();
  if (answer->code == kSuccess) return answer->id;
  return absl::UnavailableError(library->Describe("ncclGetUniqueId", answer->code));
}

}  // namespace basin::accelerator::nccl

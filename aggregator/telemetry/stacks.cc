// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/telemetry/stacks.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "absl/debugging/symbolize.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

constexpr int kMostFrames = 48;

// The handler, and what calls it.
constexpr int kFramesOfTheSignal = 2;

constexpr long kPatienceNanoseconds = 100'000'000;

int Signal() { return SIGRTMIN; }

// What one thread is asked for. It comes to its handler with the signal.
struct Request {
  sem_t answered;
  void* frames[kMostFrames];
  int count = 0;
};

void OnSignal(int /*number*/, siginfo_t* signal, void* /*context*/) {
  // Signals from elsewhere ask for nothing.
  if (signal->si_code != SI_QUEUE || signal->si_pid != getpid()) return;
  auto* const request = static_cast<Request*>(signal->si_value.sival_ptr);
  const int error = errno;
  request->count = backtrace(request->frames, kMostFrames);
  sem_post(&request->answered);
  errno = error;
}

bool Ask(pid_t thread, Request& request) {
  siginfo_t signal = {};
  signal.si_signo = Signal();
  signal.si_code = SI_QUEUE;
  signal.si_pid = getpid();
  signal.si_uid = getuid();
  signal.si_value.sival_ptr = &request;
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, Signal(), &signal) != 0) return false;
  timespec until = {};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += kPatienceNanoseconds;
  if (until.tv_nsec >= 1'000'000'000) {
    until.tv_nsec -= 1'000'000'000;
    ++until.tv_sec;
  }
  int failed = 0;
  do {
    failed = sem_clockwait(&request.answered, CLOCK_MONOTONIC, &until);
  } while (failed != 0 && errno == EINTR);
  return failed == 0;
}

std::string TextOf(void* address) {
  Dl_info place = {};
  std::string text = "?";
  if (dladdr(address, &place) != 0 && place.dli_fname != nullptr) {
    const auto offset =
        reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(place.dli_fbase);
    text = absl::StrCat(std::filesystem::path(place.dli_fname).filename().string(), "+0x",
                        absl::Hex(offset));
  }
  char name[256];
  // A return address may be that of the next function.
  if (absl::Symbolize(static_cast<char*>(address) - 1, name, sizeof name)) {
    absl::StrAppend(&text, " ", name);
  }
  return text;
}

std::string StackOf(pid_t thread) {
  auto request = std::make_unique<Request>();
  sem_init(&request->answered, 0, 0);
  if (!Ask(thread, *request)) {
    request.release();  // The thread may still write to it.
    return "no answer";
  }
  std::string text;
  for (int i = kFramesOfTheSignal; i < request->count; ++i) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", TextOf(request->frames[i]));
  }
  return text;
}

}  // namespace

void PrepareStacks() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // The first call allocates memory, which a handler must not.
  struct sigaction action = {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(Signal(), &action, nullptr);
}

std::vector<std::string> StacksOfThreads() {
  std::vector<std::string> stacks;
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    pid_t thread = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &thread) || thread == self) continue;
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    stacks.push_back(absl::StrCat(name, " (thread ", thread, "): ", StackOf(thread)));
  }
  return stacks;
}

}  // namespace basin::aggregator

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/telemetry/stacks.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/debugging/symbolize.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

constexpr int kMostFrames = 48;

// The handler, and what calls it.
constexpr int kFramesOfTheSignal = 2;

// On a busy machine a thread waits for a processor before it answers.
constexpr time_t kPatienceSeconds = 1;

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

bool Interrupt(pid_t thread, Request& request) {
  siginfo_t signal = {};
  signal.si_signo = Signal();
  signal.si_code = SI_QUEUE;
  signal.si_pid = getpid();
  signal.si_uid = getuid();
  signal.si_value.sival_ptr = &request;
  return syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, Signal(), &signal) == 0;
}

bool AwaitAnswer(Request& request, const timespec& until) {
  int failed = 0;
  do {
    failed = sem_clockwait(&request.answered, CLOCK_MONOTONIC, &until);
  } while (failed != 0 && errno == EINTR);
  return failed == 0;
}

std::string TextOf(void* returns_to) {
  // In the call, because what it returns to may belong to the next function.
  char* const address = static_cast<char*>(returns_to) - 1;
  Dl_info place = {};
  std::string text = "?";
  if (dladdr(address, &place) != 0 && place.dli_fname != nullptr) {
    const ptrdiff_t offset = address - static_cast<char*>(place.dli_fbase);
    text = absl::StrCat(std::filesystem::path(place.dli_fname).filename().string(), "+0x",
                        absl::Hex(offset));
  }
  char name[256];
  if (absl::Symbolize(address, name, sizeof name)) {
    absl::StrAppend(&text, " ", name);
  }
  return text;
}

std::string TextOf(const Request& request) {
  std::string text;
  for (int i = kFramesOfTheSignal; i < request.count; ++i) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", TextOf(request.frames[i]));
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

void ShowStacks(const std::function<void(const std::string& stack)>& show) {
  struct Asked {
    std::string thread;
    std::unique_ptr<Request> request;  // Null: it cannot be asked.
  };
  std::vector<Asked> all;
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    pid_t thread = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &thread) || thread == self) continue;
    std::string name;
    std::ifstream(entry.path() / "comm") >> name;
    Asked asked{absl::StrCat(name, " (thread ", thread, "): "), std::make_unique<Request>()};
    sem_init(&asked.request->answered, 0, 0);
    if (!Interrupt(thread, *asked.request)) asked.request.reset();
    all.push_back(std::move(asked));
  }
  timespec until = {};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += kPatienceSeconds;
  for (Asked& asked : all) {
    if (asked.request != nullptr && AwaitAnswer(*asked.request, until)) {
      show(absl::StrCat(asked.thread, TextOf(*asked.request)));
    } else {
      show(absl::StrCat(asked.thread, "no answer"));
      static_cast<void>(asked.request.release());  // The thread may still write to it.
    }
  }
}

}  // namespace basin::aggregator

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/signals.h"

#include <signal.h>
#include <unistd.h>

#include <thread>

namespace basin::aggregator {
namespace {

sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

void BlockSignals() {
  const sigset_t signals = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

int AwaitSignal() {
  const sigset_t signals = EndingSignals();
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  return signal;
}

void EndAtNextSignal() {
  std::thread([] { _exit(128 + AwaitSignal()); }).detach();
}

void RequestEnd() { kill(getpid(), SIGTERM); }

}  // namespace basin::aggregator

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Blocks all signals for the calling thread while it lives. A thread inherits the mask of its
// creator, so threads that are created meanwhile, by a library or by us, handle no signals: they
// belong to the program.
//
// Thread contract: a value of one thread, on its stack. Failure: none.

#ifndef BASIN_RUNTIME_SIGNALS_BLOCKED_H_
#define BASIN_RUNTIME_SIGNALS_BLOCKED_H_

#include <pthread.h>
#include <signal.h>

namespace basin {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace basin

#endif  // BASIN_RUNTIME_SIGNALS_BLOCKED_H_

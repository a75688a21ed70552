// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/standard_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

namespace basin {

void OpenMissingStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    const int opened = open("/dev/null", O_RDWR);
    // Another thread may have taken the number since, so that this is one too many.
    if (opened != -1 && opened != stream) close(opened);
  }
}

void WriteToStderr(const std::string& text) {
  sigset_t pipe;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  std::fwrite(text.data(), 1, text.size(), stderr);
  const timespec no_time = {0, 0};
  if (!was_pending) sigtimedwait(&pipe, nullptr, &no_time);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace basin

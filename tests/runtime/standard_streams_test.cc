// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/standard_streams.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "gtest/gtest.h"

namespace basin {
namespace {

// The wait status of a child that runs this and ends with 0.
int StatusOf(const std::function<void()>& in_child) {
  const pid_t child = fork();
  if (child == 0) {
    in_child();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(StandardStreams, AClosedOneIsOpenedSoThatNothingElseGetsItsNumber) {
  for (const int closed : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    EXPECT_EQ(0, StatusOf([closed] {
                close(closed);
                OpenMissingStreams();
                if (fcntl(closed, F_GETFD) == -1) _exit(1);
                int pipe_ends[2];
                if (pipe(pipe_ends) != 0 || pipe_ends[0] <= STDERR_FILENO) _exit(2);
              }))
        << closed;
  }
}

TEST(StandardStreams, AnOpenOneStaysAsItIs) {
  EXPECT_EQ(0, StatusOf([] {
              int pipe_ends[2];
              if (pipe(pipe_ends) != 0 || dup2(pipe_ends[1], STDERR_FILENO) == -1) _exit(1);
              OpenMissingStreams();
              WriteToStderr("text");
              char text[8];
              if (read(pipe_ends[0], text, sizeof text) != 4) _exit(2);
            }));
}

TEST(StandardStreams, AReaderOfStderrThatHasGoneDoesNotEndTheProcess) {
  EXPECT_EQ(0, StatusOf([] {
              std::signal(SIGPIPE, SIG_DFL);
              int pipe_ends[2];
              if (pipe(pipe_ends) != 0 || dup2(pipe_ends[1], STDERR_FILENO) == -1) _exit(1);
              close(pipe_ends[0]);
              WriteToStderr("text\n");
              WriteToStderr("text\n");
              sigset_t pending;
              sigpending(&pending);
              if (sigismember(&pending, SIGPIPE) != 0) _exit(2);
            }));
}

}  // namespace
}  // namespace basin

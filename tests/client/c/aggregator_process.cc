// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/client/c/aggregator_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace basin {

AggregatorProcess::AggregatorProcess(const std::string& program, const std::string& address,
                                     const std::vector<std::string>& flags) {
  Start(program, address, flags);
}

void AggregatorProcess::Start(const std::string& program, const std::string& address,
                              const std::vector<std::string>& flags) {
  std::vector<std::string> words = {program,
                                    "serve",
                                    "--grpc-listen=" + address,
                                    "--admin-listen=none",
                                    "--http-listen=none",
                                    "--local-listen=none"};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  process_ = fork();
  ASSERT_GE(process_, 0);
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // A test that crashes leaves nothing behind.
    dup2(ends[1], STDOUT_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  output_ = ends[0];

  // It logs its addresses when it is ready.
  const std::string before = R"("grpc":")";
  std::string said;
  while (address_.empty()) {
    pollfd readable = {output_, POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 60'000), 1) << "basind says nothing";
    char some[4096];
    const ssize_t got = read(output_, some, sizeof(some));
    ASSERT_GT(got, 0) << program << " ended: " << said;
    said.append(some, static_cast<size_t>(got));
    const size_t at = said.find(before);
    const size_t end = at == std::string::npos ? at : said.find('"', at + before.size());
    if (end == std::string::npos) continue;
    address_ = said.substr(at + before.size(), end - at - before.size());
  }
}

AggregatorProcess::~AggregatorProcess() {
  if (process_ > 0) Kill(SIGKILL);
  if (output_ >= 0) close(output_);
}

void AggregatorProcess::Kill(int signal) {
  ASSERT_GT(process_, 0);
  ASSERT_EQ(kill(process_, signal), 0);
  if (signal == SIGSTOP || signal == SIGCONT) return;
  ASSERT_EQ(waitpid(process_, nullptr, 0), process_);
  process_ = -1;
}

}  // namespace basin

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// As call_worker.cc, through the C++ interface, and with gradient lanes too.
//
// usage: call_worker_cpp LOOP     a letter is a sum by that name: a small one a call, a capital one
//                                 a round of a gradient lane; `|` is a barrier

#include <basin/client.h>

#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <utility>

namespace {

constexpr std::chrono::hours kForever(24);

[[noreturn]] void Fail(const basin::Status& status) {
  std::fprintf(stderr, "%s: %s\n", basin::CodeName(status.code()), status.message().c_str());
  std::exit(1);
}

void Check(const basin::Status& status) {
  if (!status.ok()) Fail(status);
}

// A call that has too few workers continues when there are enough again.
bool GoesOn(const basin::Status& status) {
  return status.code() == basin::Code::kPaused || status.code() == basin::Code::kOutcomeUnknown;
}

class Calls {
 public:
  explicit Calls(basin::Worker& worker) : worker_(worker) {}

  std::array<float, 2> Sum(char letter, std::array<float, 2> value) {
    basin::Lane& lane = Named(letter);
    Check(lane.Begin(basin::RoundSpec(basin::Op::kSum)));
    Check(lane.Push(0, value.data(), sizeof value));
    Check(lane.Commit());
    basin::Result<basin::RoundResult> result = lane.Wait(kForever);
    while (!result.ok() && GoesOn(result.status())) result = lane.Wait(kForever);
    if (!result.ok()) Fail(result.status());
    Check(result->Copy(0, value.data(), sizeof value));
    return value;
  }

  uint32_t Meet() {
    basin::Status status = worker_.Barrier("meet", kForever);
    while (!status.ok() && GoesOn(status)) status = worker_.Barrier("meet", kForever);
    Check(status);
    return worker_.place()->world_size;
  }

 private:
  // Registered when it is used first, as a script does.
  basin::Lane& Named(char letter) {
    const auto found = lanes_.find(letter);
    if (found != lanes_.end()) return found->second;
    const bool gradient = std::isupper(static_cast<unsigned char>(letter)) != 0;
    basin::Result<basin::Lane> lane = worker_.Register(
        std::string(gradient ? "" : "call/") + letter, {{"value", basin::DType::kF32, {2}}},
        gradient ? basin::LaneKind::kGradient : basin::LaneKind::kCall);
    if (!lane.ok()) Fail(lane.status());
    return lanes_.emplace(letter, *std::move(lane)).first->second;
  }

  basin::Worker& worker_;
  std::map<char, basin::Lane> lanes_;
};

void Say(const char* what, uint32_t number) {
  std::printf("%s %u\n", what, number);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string loop = argc > 1 ? argv[1] : "a";
  std::atomic<bool> stop{false};
  std::thread([&stop] {
    while (std::getchar() != '\n') {
      if (std::feof(stdin) != 0) return;
    }
    stop = true;
  }).detach();
  basin::Result<basin::Worker> worker = basin::Worker::Connect(basin::Options());
  if (!worker.ok()) Fail(worker.status());
  Check(worker->Ready());
  Check(worker->AwaitMember(kForever));
  std::puts("member");
  std::fflush(stdout);
  Calls calls(*worker);
  for (bool goes_on = true; goes_on;) {
    for (const char letter : loop) {
      if (letter == '|') {
        Say("call", calls.Meet());
        continue;
      }
      const bool ends = stop && letter == loop[0];
      const auto sum = calls.Sum(letter, {1, ends ? 1.F : 0.F});
      Say("call", static_cast<uint32_t>(sum[0]));
      goes_on = sum[1] == 0;
      if (!goes_on) break;
    }
  }
  Check(worker->Leave());
  std::quick_exit(0);  // The thread that listens may still do so.
}

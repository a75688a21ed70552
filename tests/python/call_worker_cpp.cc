// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// As call_worker.cc, through the C++ interface, and with gradient lanes too.
//
// usage: call_worker_cpp LOOP     a letter is a sum by that name: a small one a call, a capital one
//                                 a round of a gradient lane; `|` is a barrier

#include <basin/client.h>

#include <array>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "tests/python/call_loop.h"

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

}  // namespace

int main(int argc, char** argv) {
  basin::Result<basin::Worker> worker = basin::Worker::Connect(basin::Options());
  if (!worker.ok()) Fail(worker.status());
  const auto join = [&] {
    Check(worker->Ready());
    Check(worker->AwaitMember(kForever));
  };
  Calls calls(*worker);
  basin::testing::RepeatCalls(
      argc > 1 ? argv[1] : "a", join,
      [&](char letter, std::array<float, 2> value) { return calls.Sum(letter, value); },
      [&] { return calls.Meet(); });
  Check(worker->Leave());
  std::quick_exit(0);
}

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A trainer that does what it reads, one line after the other, and answers each with "ok" or the
// error, in one line:
//
//   register LANE TENSORS ELEMENTS NAME_BYTES   Tensors of f32 with names of this length; repeated
//                                               with more of them, the lane grows.
//   push LANE [VALUE]                           Begins a round and pushes every tensor, full of 1
//                                               or this.
//   commit LANE                                 Commits it, waits for the verdict, and reads every
//                                               result.
//   result LANE                                 The answer is "ok", the first number of the result,
//                                               and the workers that were left out of the round.
//   rounds LANE MILLISECONDS                    Rounds for this time; all workers end with the same
//                                               one. The answer is "ok" and the longest time
//                                               between two verdicts, in milliseconds.
//   announce NAME BYTES                         A value of version 1.
//   get NAME BYTES
//   leave
//
// The job and its sizes come from the environment. It is a member when it has written "member".

#include <basin/client.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::chrono::minutes kPatience(5);

struct OneLane {
  basin::Lane lane;
  std::size_t tensors = 0;
  std::size_t elements = 0;
};

class Trainer {
 public:
  explicit Trainer(basin::Worker worker) : worker_(std::move(worker)) {}

  basin::Status Join() {
    basin::Status status = worker_.Ready();
    return status.ok() ? worker_.AwaitMember(kPatience) : status;
  }

  // What the last command has to say besides "ok".
  const std::string& reply() const { return reply_; }

  basin::Status Obey(const std::string& line) {
    std::istringstream words(line);
    reply_.clear();
    std::string verb;
    std::string name;
    words >> verb >> name;
    if (verb == "register") return Register(name, words);
    if (verb == "push") {
      float value = 1.0F;
      words >> value;
      return Push(lanes_.at(name), words.fail() ? 1.0F : value);
    }
    if (verb == "commit") return Commit(lanes_.at(name));
    if (verb == "result") {
      reply_ = " " + std::to_string(values_[0]);
      for (const std::string& worker : late_) reply_ += " " + worker;
      return basin::Status();
    }
    if (verb == "rounds") return Rounds(lanes_.at(name), words);
    if (verb == "leave") return worker_.Leave();
    std::size_t bytes = 0;
    words >> bytes;
    const basin::Tensor value = {name, basin::DType::kU8, {bytes}};
    std::vector<char> memory(bytes);
    if (verb == "announce") return worker_.Announce("values", value, 1, memory.data(), bytes);
    return worker_.Get("values", value, 1, "", kPatience, memory.data(), bytes);
  }

 private:
  basin::Status Register(const std::string& name, std::istringstream& words) {
    std::size_t tensors = 0;
    std::size_t elements = 0;
    std::size_t name_bytes = 0;
    words >> tensors >> elements >> name_bytes;
    std::vector<basin::Tensor> list;
    list.reserve(tensors);
    for (std::size_t i = 0; i < tensors; ++i) {
      std::string tensor = std::to_string(i);
      tensor.resize(std::max(name_bytes, tensor.size()), '.');
      list.push_back({std::move(tensor), basin::DType::kF32, {elements}});
    }
    basin::Result<basin::Lane> lane = worker_.Register(name, list);
    if (!lane.ok()) return lane.status();
    lanes_.insert_or_assign(name, OneLane{*std::move(lane), tensors, elements});
    return basin::Status();
  }

  basin::Status Rounds(OneLane& one, std::istringstream& words) {
    std::int64_t milliseconds = 0;
    words >> milliseconds;
    const auto begin = std::chrono::steady_clock::now();
    auto last = begin;
    std::chrono::steady_clock::duration longest{0};
    // A worker that has had enough contributes something, so that all learn of it in the same
    // round.
    for (bool over = false; !over;) {
      const bool enough = last - begin > std::chrono::milliseconds(milliseconds);
      basin::Status status = Push(one, enough ? 1.0F : 0.0F);
      if (status.ok()) status = Commit(one);
      if (!status.ok()) return status;
      over = values_[0] > 0;
      const auto now = std::chrono::steady_clock::now();
      longest = std::max(longest, now - last);
      last = now;
    }
    reply_ = " " +
             std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(longest).count());
    return basin::Status();
  }

  basin::Status Push(OneLane& one, float value = 1.0F) {
    values_.assign(std::max(values_.size(), one.elements), value);
    basin::Status status = one.lane.Begin(basin::RoundSpec(basin::Op::kAverage));
    for (std::size_t i = 0; status.ok() && i < one.tensors; ++i) {
      status = one.lane.Push(i, values_.data(), one.elements * sizeof(float));
    }
    return status;
  }

  basin::Status Commit(OneLane& one) {
    const basin::Status status = one.lane.Commit();
    if (!status.ok()) return status;
    const basin::Result<basin::RoundResult> result = one.lane.Wait(kPatience);
    if (!result.ok()) return result.status();
    late_ = result->info().late;
    for (std::size_t i = 0; i < one.tensors; ++i) {
      const basin::Status copied = result->Copy(i, values_.data(), one.elements * sizeof(float));
      if (!copied.ok()) return copied;
    }
    return basin::Status();
  }

  basin::Worker worker_;
  std::map<std::string, OneLane> lanes_;
  std::vector<float> values_;
  std::vector<std::string> late_;  // In the last round.
  std::string reply_;
};

std::string Line(const basin::Status& status, const std::string& good) {
  if (status.ok()) return good;
  return std::string(basin::CodeName(status.code())) + ": " + status.message();
}

}  // namespace

int main() {
  basin::Result<basin::Worker> worker = basin::Worker::Connect(basin::Options());
  if (!worker.ok()) {
    std::cout << Line(worker.status(), "") << std::endl;
    return 1;
  }
  Trainer trainer(*std::move(worker));
  std::cout << Line(trainer.Join(), "member") << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const basin::Status status = trainer.Obey(line);
    std::cout << Line(status, "ok" + trainer.reply()) << std::endl;
  }
  return 0;
}

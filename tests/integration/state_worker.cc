// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A worker with two registered states that executes the lines of its standard input, and answers
// each with one line, "CODE: text" after an error. The state "value" is memory, "words" a text that
// grows with each round; the memory is large, so that it needs many frames.
//
//   usage: state_worker MODEL [NAME]
//
// MODEL is that of the words, NAME their name.
//
//   value N      sets the value
//   get TEXT     from now on the words cannot be got, for this reason; without one they can
//   set TEXT     the next time they cannot be set
//   ready [STEP] declares itself ready                    -> "ok"
//   lane NAME    registers another gradient lane          -> "ok"
//   member       until it is a member with the states     -> "ok"
//   states       -> "VALUE WORDS"
//   begin        begins a round with a gradient of 1      -> "ok"
//   finish       commits, waits, and adds the average     -> "MEMBERS", or "PAUSED: ..."
//   wait         waits again                              -> the same
//   allreduce    a round in one call                      -> the same
//   leave        -> "ok"

#include <basin/client.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr std::chrono::minutes kPatience(1);

class StateWorker {
 public:
  explicit StateWorker(basin::Worker worker) : worker_(std::move(worker)) {}

  basin::Status Register(const std::string& model, const std::string& name) {
    basin::Result<basin::Lane> lane =
        worker_.Register("model", {{"gradient", basin::DType::kF64, {1}}});
    if (!lane.ok()) return lane.status();
    lane_.push_back(*std::move(lane));
    basin::Status status =
        worker_.RegisterState("value", values_.data(), values_.size() * sizeof(double));
    if (!status.ok()) return status;
    return worker_.RegisterState(
        name, model,
        [this]() -> basin::Result<std::string> {
          if (cannot_get_.empty()) return words_;
          return basin::Status(basin::Code::kDataCorrupt, cannot_get_);
        },
        [this](std::string_view content) {
          // As a trainer that finds an error in the middle.
          words_ = content;
          if (cannot_set_.empty()) return basin::Status();
          const std::string why = std::exchange(cannot_set_, "");
          return basin::Status(basin::Code::kDataCorrupt, why);
        });
  }

  std::string Obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    std::string rest;
    words >> verb;
    std::getline(words >> std::ws, rest);
    if (verb == "value") {
      values_.assign(values_.size(), std::stod(rest));
      return "ok";
    }
    if (verb == "get") return cannot_get_ = rest, "ok";
    if (verb == "set") return cannot_set_ = rest, "ok";
    if (verb == "ready") {
      const std::uint64_t step = rest.empty() ? 0 : std::stoull(rest);
      return Line(worker_.Ready(step, step));
    }
    if (verb == "lane") {
      return Line(worker_.Register(rest, {{"gradient", basin::DType::kF64, {1}}}).status());
    }
    if (verb == "member") return Line(worker_.AwaitMember(kPatience));
    if (verb == "states") return States();
    if (verb == "begin") return Line(Begin());
    if (verb == "finish") {
      const basin::Status status = lane_[0].Commit();
      return status.ok() ? Wait() : Line(status);
    }
    if (verb == "wait") return Wait();
    if (verb == "allreduce") {
      gradient_ = 1;
      return Take(lane_[0].Allreduce(basin::RoundSpec(basin::Op::kAverage),
                                     {{0, &gradient_, &gradient_, sizeof gradient_}}, kPatience));
    }
    return verb == "leave" ? Line(worker_.Leave()) : "no such verb";
  }

  static std::string Line(const basin::Status& status) {
    if (status.ok()) return "ok";
    return std::string(basin::CodeName(status.code())) + ": " + status.message();
  }

 private:
  std::string States() const {
    const bool whole = std::count(values_.begin(), values_.end(), values_[0]) ==
                       static_cast<std::ptrdiff_t>(values_.size());
    return (whole ? std::to_string(static_cast<int>(values_[0])) : "mixed") + " " + words_;
  }

  basin::Status Begin() {
    gradient_ = 1;
    const basin::Status status = lane_[0].Begin(basin::RoundSpec(basin::Op::kAverage));
    return status.ok() ? lane_[0].Push(0, &gradient_, sizeof gradient_) : status;
  }

  std::string Wait() { return Take(lane_[0].Wait(kPatience)); }

  std::string Take(const basin::Result<basin::RoundResult>& result) {
    if (!result.ok()) return Line(result.status());
    const basin::Status status = result->Copy(0, &gradient_, sizeof gradient_);
    if (!status.ok()) return Line(status);
    for (double& value : values_) value += gradient_;
    words_ += "+";
    const basin::Result<basin::Place> place = worker_.place();
    return place.ok() ? std::to_string(place->members) : Line(place.status());
  }

  std::vector<double> values_ = std::vector<double>(std::size_t{1} << 20);
  std::string words_;
  std::string cannot_get_;
  std::string cannot_set_;
  double gradient_ = 0;
  std::vector<basin::Lane> lane_;
  basin::Worker worker_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  basin::Result<basin::Worker> worker = basin::Worker::Connect(basin::Options());
  if (!worker.ok()) return 1;
  StateWorker trainer(*std::move(worker));
  std::cout << StateWorker::Line(trainer.Register(argv[1], argc > 2 ? argv[2] : "words"))
            << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << trainer.Obey(line) << std::endl;
  }
  return 0;
}

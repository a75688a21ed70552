// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A trainer for tests of the programs: executes the lines of its standard input, and answers each
// with one line.
//
//   usage: basin-test-trainer HOST:PORT JOB WORKER MIN MAX
//
// The variables TRAINER_LANE and TRAINER_TENSOR name its lane ("model") and tensor ("weight"). With
// TRAINER_ELEMENTS, the tensor has so many, and each is VALUE times a number that depends on its
// place; otherwise all are VALUE.
//
//   join          until it is a member         -> "member RANK of WORLD"
//   begin VALUE   begins a round and pushes    -> "begun"
//   finish        commits and waits            -> "round N: OUTCOME over COUNT, VALUE"
//   digest        of the last result           -> 16 hexadecimal digits
//   leave         leaves the job               -> "left"
//
// The answer to a failure is "error: ..." .

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/transport/grpc/connector.h"
#include "client/transport/worker.h"
#include "runtime/clock.h"

namespace basin {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);
constexpr size_t kElements = 3 * kChunkBytes / sizeof(float) + 7;

// Sums of a few of these depend on the order.
float FactorAt(size_t index) { return 1.0F + static_cast<float>(index * 2654435761U % 1021) / 3; }

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

ClientTls TlsOfEnvironment() {
  return {Variable("BASIN_TLS_CA"), Variable("BASIN_TLS_CERT"), Variable("BASIN_TLS_KEY")};
}

class Trainer {
 public:
  explicit Trainer(const std::string& address)
      : connector_(address, TlsOfEnvironment(), {}, {}, Variable("BASIN_TOKEN_FILE")) {}

  absl::Status Connect(const std::vector<std::string>& arguments) {
    client::WorkerOptions options;
    options.core.job = arguments[1];
    options.core.worker = arguments[2];
    options.core.fresh = true;
    options.core.software = Variable("BASIN_SOFTWARE");
    options.core.settings.min_workers = static_cast<uint32_t>(std::stoul(arguments[3]));
    options.core.settings.max_workers = static_cast<uint32_t>(std::stoul(arguments[4]));
    auto worker = client::Worker::Connect(std::move(options), connector_, clock_);
    if (!worker.ok()) return worker.status();
    worker_ = *std::move(worker);
    const std::string lane = Variable("TRAINER_LANE");
    const std::string tensor = Variable("TRAINER_TENSOR");
    const auto model =
        worker_->Register(lane.empty() ? "model" : lane, LaneKind::kGradient,
                          {{tensor.empty() ? "weight" : tensor, DType::kF32, {elements_}}});
    if (!model.ok()) return model.status();
    lane_ = model->lane;
    return worker_->Call(client::DeclareReady{});
  }

  std::string Do(const std::string& verb, std::istringstream& rest) {
    if (verb == "join") return Join();
    if (verb == "begin") {
      float value = 0;
      rest >> value;
      return Begin(value);
    }
    if (verb == "finish") return Finish();
    if (verb == "digest") return absl::StrCat(absl::Hex(digest_, absl::kZeroPad16));
    if (verb == "leave") return Reported(worker_->Leave(), "left");
    return "error: no such verb";
  }

 private:
  static std::string Reported(const absl::Status& status, const std::string& done) {
    return status.ok() ? done : absl::StrCat("error: ", status.ToString());
  }

  std::string Join() {
    const absl::Status joined = worker_->AwaitMember(kLong);
    const client::JobView view = worker_->view();
    return Reported(joined, absl::StrCat("member ", view.rank.value_or(0), " of ",
                                         view.membership.members.size()));
  }

  std::string Begin(float value) {
    weight_.assign(elements_, value);
    for (size_t i = 0; varies_ && i < elements_; ++i) weight_[i] *= FactorAt(i);
    client::BeginRound begin;
    begin.lane = lane_;
    begin.spec.op = ReduceOp::kSum;
    begin.counts.samples = 32;
    absl::Status begun = worker_->Begin(begin);
    if (begun.ok())
      begun = worker_->Push(lane_, {0, weight_.data(), weight_.size() * sizeof(float)});
    return Reported(begun, "begun");
  }

  std::string Finish() {
    if (const absl::Status committed = worker_->Commit(lane_); !committed.ok()) {
      return Reported(committed, "");
    }
    const client::RoundOutcome outcome = worker_->Wait(lane_, kLong);
    if (!outcome.ok()) return Reported(outcome.status(), "");
    const VerdictRecord& record = (*outcome)->record();
    digest_ = record.value.digest;
    const absl::Status copied =
        (*outcome)->CopyTo(0, weight_.data(), weight_.size() * sizeof(float));
    return Reported(copied,
                    absl::StrCat("round ", record.round, ": ", OutcomeName(record.value.outcome),
                                 " over ", record.value.contributors.size(), ", ", weight_.back()));
  }

  MonotonicClock clock_;
  client::GrpcConnector connector_;
  std::unique_ptr<client::Worker> worker_;
  client::LaneHandle lane_ = 0;
  const bool varies_ = !Variable("TRAINER_ELEMENTS").empty();
  const size_t elements_ = varies_ ? std::stoul(Variable("TRAINER_ELEMENTS")) : kElements;
  std::vector<float> weight_;
  Digest digest_ = 0;
};

int Run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5) {
    std::cerr << "usage: basin-test-trainer HOST:PORT JOB WORKER MIN MAX\n";
    return 2;
  }
  Trainer trainer(arguments[0]);
  if (const absl::Status connected = trainer.Connect(arguments); !connected.ok()) {
    std::cerr << connected << "\n";
    return 1;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    std::cout << trainer.Do(verb, words) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace basin

int main(int argc, char** argv) {
  return basin::Run(std::vector<std::string>(argv + 1, argv + argc));
}

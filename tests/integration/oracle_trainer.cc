// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A trainer whose results show which workers were counted. The worker whose id ends with the number
// k contributes 2^k, times an odd number that is different in each step, in every element of every
// tensor; the average times its divisor, divided by that number, is then a bit mask of the workers:
// exact for k < 22. A contribution that is counted twice, is of another step, or is missing from
// one tensor only, shows in it.
//
//   oracle_trainer STEPS [--pace-ms=N] [--tensors=N] [--elements=N] [--stepwise]
//                  [--nan-at=STEP] [--shape-off] [--f64] [--donor-only]
//
// --stepwise: reads a line before each step, and another between its pushes and its commit; "run"
// ends the reading. --nan-at: the first element of tensor 0 is NaN in that step. --shape-off:
// tensor 0 has one element more than on the other workers; --f64: another dtype. --donor-only: it
// serves its state only while it is the donor.
//
// After SIGTERM it leaves at the end of its step, or at once if the job is paused.
//
// On standard output it reports its events in JSON, one per line: member, begin, pushed, applied,
// rejected, aborted, evicted, end, failed.

#include <basin/client.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr std::chrono::minutes kPatience(5);
constexpr std::chrono::seconds kSlice(1);
// The time beyond a call's own deadline after which the library counts as having lost control.
constexpr std::chrono::seconds kGrace(1);

struct Arguments {
  std::int64_t steps = 0;
  std::chrono::milliseconds pace{0};
  std::size_t tensors = 2;
  std::size_t elements = 4096;
  bool stepwise = false;
  std::int64_t nan_at = -1;
  bool shape_off = false;
  bool f64 = false;
  bool donor_only = false;
};

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  if (argc < 2) std::abort();
  arguments.steps = std::atoll(argv[1]);
  for (int i = 2; i < argc; ++i) {
    const std::string given = argv[i];
    const std::string name = given.substr(0, given.find('='));
    const std::int64_t number = std::atoll(given.c_str() + given.find('=') + 1);
    if (name == "--pace-ms") {
      arguments.pace = std::chrono::milliseconds(number);
    } else if (name == "--tensors") {
      arguments.tensors = static_cast<std::size_t>(number);
    } else if (name == "--elements") {
      arguments.elements = static_cast<std::size_t>(number);
    } else if (name == "--stepwise") {
      arguments.stepwise = true;
    } else if (name == "--nan-at") {
      arguments.nan_at = number;
    } else if (name == "--shape-off") {
      arguments.shape_off = true;
    } else if (name == "--f64") {
      arguments.f64 = true;
    } else if (name == "--donor-only") {
      arguments.donor_only = true;
    } else {
      std::fprintf(stderr, "unknown: %s\n", argv[i]);
      std::exit(2);
    }
  }
  return arguments;
}

// The state for a joiner: the step of the job, and a digest of all applied results, repeated so
// that it needs several frames.
struct State {
  std::int64_t step = 0;
  std::array<std::uint64_t, (std::size_t{3} << 17) - 1> history = {};
};

// The number at the end of a worker's id.
int Ordinal(const std::string& worker) {
  return std::atoi(worker.c_str() + worker.find_last_not_of("0123456789") + 1);
}

// The number of the signal that asks this process to leave; 0 before it.
volatile std::sig_atomic_t leaving = 0;
void Leave(int signal) { leaving = signal; }

std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + "\"";
}

// One write, so that lines of several threads stay whole.
void Report(const std::string& event, const std::string& fields = "") {
  const std::string line =
      "{\"event\":" + Quoted(event) + (fields.empty() ? "" : ",") + fields + "}\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

std::string Field(const std::string& name, std::int64_t value) {
  return Quoted(name) + ":" + std::to_string(value);
}

std::string Hex(const std::string& name, std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return Quoted(name) + ":" + Quoted(text);
}

class Trainer {
 public:
  Trainer(const Arguments& arguments, basin::Worker worker, basin::Lane lane)
      : arguments_(arguments),
        worker_(std::move(worker)),
        lane_(std::move(lane)),
        ordinal_(Ordinal(worker_.id())),
        stepwise_(arguments.stepwise) {
    // With room for a tensor that is larger than it should be.
    sent_.resize(arguments.tensors, std::vector<float>(2 * arguments.elements + 2));
    got_.resize(arguments.elements);
  }

  // Becomes a member that has the state.
  basin::Status Join() {
    basin::Status status = worker_.Ready(static_cast<std::uint64_t>(state_->step));
    if (status.ok()) status = worker_.AwaitMember(kPatience);
    if (status.ok()) status = Load();
    if (!status.ok()) return status;
    const auto& history = state_->history;
    const bool mixed = std::count(history.begin(), history.end(), history[0]) !=
                       static_cast<std::ptrdiff_t>(history.size());
    Report("member", Field("step", state_->step) + "," + Field("mixed", mixed ? 1 : 0));
    return status;
  }

  basin::Status Step() {
    AwaitWord();
    // The time that a trainer computes for.
    poll(nullptr, 0, static_cast<int>(arguments_.pace.count()));
    Fill();
    Report("begin", Field("step", state_->step));
    basin::RoundSpec spec(basin::Op::kAverage);
    spec.step = static_cast<std::uint64_t>(state_->step);
    basin::Status status = lane_.Begin(spec);
    for (std::size_t i = 0; status.ok() && i < sent_.size(); ++i) {
      status = lane_.Push(i, sent_[i].data(), SentBytes(i));
    }
    if (!status.ok()) return status;
    Report("pushed", Field("step", state_->step));
    AwaitWord();
    status = lane_.Commit();
    if (!status.ok()) return status;

    // A worker that joined before a wait without an outcome takes the current state; one that joins
    // with the verdict needs the state after it.
    basin::Result<basin::Place> before = worker_.place();
    basin::Result<basin::RoundResult> result = Wait();
    while (!result.ok() && (result.status().code() == basin::Code::kOutcomeUnknown ||
                            result.status().code() == basin::Code::kPaused)) {
      if (!before.ok()) return before.status();
      if (leaving != 0) {
        if (result.status().code() == basin::Code::kPaused) return result.status();
        status = worker_.WillLeave();
        if (!status.ok()) return status;
      }
      status = Announce(*before);
      if (!status.ok()) return status;
      before = worker_.place();
      result = Wait();
    }
    if (!result.ok()) return result.status();
    status = Apply(*result);
    if (status.ok()) status = ServeNewMembers();
    return status;
  }

  const State& state() const { return *state_; }
  basin::Worker& worker() { return worker_; }

 private:
  static inline const basin::Tensor kState = {"state", basin::DType::kI64, {std::size_t{3} << 17}};

  static std::uint64_t Version(const basin::Place& place) {
    return (place.donor_since.term << 12) + place.donor_since.counter;
  }

  // Gets the state from any worker that has it, in slices, because the version changes when more
  // workers join.
  basin::Status Load() {
    for (;;) {
      const basin::Result<basin::Place> place = worker_.place();
      if (!place.ok()) return place.status();
      if (!place->donor.has_value() || place->is_donor) return Announce(*place);
      const basin::Status status =
          worker_.Get("model", kState, Version(*place), "", kSlice, state_.get(), sizeof(State));
      if (status.ok()) return Announce(*place);
      if (status.code() == basin::Code::kUnavailable) {
        Report("source_lost", Quoted("text") + ":" + Text(status));
      } else if (status.code() != basin::Code::kDeadlineExceeded) {
        return status;
      }
    }
  }

  // The step's own number.
  double Scale() const { return static_cast<double>(2 * (state_->step % 64) + 1); }

  void AwaitWord() {
    std::string line;
    if (!stepwise_) return;
    if (!std::getline(std::cin, line) || line == "run") stepwise_ = false;
  }

  // The registered size of tensor `i`, which may be larger than it should be.
  std::size_t SentBytes(std::size_t i) const {
    const std::size_t elements = arguments_.elements + (arguments_.shape_off && i == 0 ? 1 : 0);
    return elements * (arguments_.f64 && i == 0 ? sizeof(double) : sizeof(float));
  }

  void Fill() {
    const auto value = static_cast<float>(std::ldexp(Scale(), ordinal_));
    for (std::vector<float>& tensor : sent_) tensor.assign(tensor.size(), value);
    if (state_->step == arguments_.nan_at) sent_[0][0] = std::numeric_limits<float>::quiet_NaN();
  }

  basin::Result<basin::RoundResult> Wait() {
    const auto begin = std::chrono::steady_clock::now();
    basin::Result<basin::RoundResult> result = lane_.Wait(kSlice);
    if (std::chrono::steady_clock::now() - begin > kSlice + kGrace) Report("overdue");
    return result;
  }

  // The counted workers, by the bytes of every element of every tensor.
  basin::Status Apply(const basin::RoundResult& result) {
    const basin::RoundInfo info = result.info();
    std::int64_t mask = -1;
    std::int64_t nan = 0;
    bool mixed = false;
    std::uint64_t digest = 0;
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      basin::Status status = result.Copy(i, got_.data(), got_.size() * sizeof(float));
      if (!status.ok()) return status;
      for (const float value : got_) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        digest = Mix(digest + bits + 1);
        if (std::isnan(value)) {
          ++nan;
          continue;
        }
        const double sum = static_cast<double>(value) * static_cast<double>(info.divisor);
        const auto counted = static_cast<std::int64_t>(std::llround(sum / Scale()));
        mixed |= std::abs(sum / Scale() - static_cast<double>(counted)) > 1e-3;
        if (mask < 0) mask = counted;
        mixed |= mask != counted;
      }
    }
    std::string names;
    for (const basin::Contributor& contributor : info.contributors) {
      names += (names.empty() ? "" : ",") + Quoted(contributor.worker);
    }
    const std::int64_t step = state_->step++;
    state_->history.fill(Mix(state_->history[0] + digest));
    std::string fields =
        Field("step", step) + "," + Field("round", static_cast<std::int64_t>(info.round)) + "," +
        Field("mask", mask) + "," + Field("mixed", mixed ? 1 : 0) + "," + Field("nan", nan) + "," +
        Field("divisor", static_cast<std::int64_t>(info.divisor)) + "," + Hex("digest", digest) +
        "," + Hex("chain", info.chain) + "," + Hex("history", state_->history[0]) +
        ",\"contributors\":[" + names + "]";
    if (info.nonfinite.has_value()) fields += ",\"nonfinite\":" + Quoted(info.nonfinite->worker);
    Report("applied", fields);
    if (!result.rejection().ok())
      Report("rejected", Quoted("text") + ":" + Text(result.rejection()));
    return basin::Status();
  }

  basin::Status ServeNewMembers() {
    const basin::Result<basin::Place> place = worker_.place();
    return place.ok() ? Announce(*place) : place.status();
  }

  // Serves the state to the newest members; all workers with the state do so.
  basin::Status Announce(const basin::Place& place) {
    if (!place.donor.has_value() || Version(place) == version_) return basin::Status();
    if (arguments_.donor_only && !place.is_donor) return basin::Status();
    version_ = Version(place);
    return worker_.Announce("model", kState, Version(place), state_.get(), sizeof(State));
  }

 public:
  static std::string Text(const basin::Status& status) {
    return Quoted(std::string(basin::CodeName(status.code())) + ": " + status.message());
  }

 private:
  const Arguments arguments_;
  basin::Worker worker_;
  basin::Lane lane_;
  const int ordinal_;
  bool stepwise_;
  const std::unique_ptr<State> state_ = std::make_unique<State>();
  std::uint64_t version_ = 0;  // The version of the state that was announced last.
  std::vector<std::vector<float>> sent_;
  std::vector<float> got_;
};

int Fail(const basin::Status& status) {
  Report("failed", Quoted("text") + ":" + Trainer::Text(status));
  return status.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  std::signal(SIGTERM, Leave);
  basin::Result<basin::Worker> worker = basin::Worker::Connect(basin::Options());
  if (!worker.ok()) return Fail(worker.status());
  std::vector<basin::Tensor> tensors;
  for (std::size_t i = 0; i < arguments.tensors; ++i) {
    tensors.push_back({"tensor" + std::to_string(i), basin::DType::kF32, {arguments.elements}});
  }
  if (arguments.shape_off) tensors[0].shape = {arguments.elements + 1};
  if (arguments.f64) tensors[0].dtype = basin::DType::kF64;
  basin::Result<basin::Lane> lane = worker->Register("model", tensors);
  if (!lane.ok()) return Fail(lane.status());
  Trainer trainer(arguments, *std::move(worker), *std::move(lane));

  bool joins = true;
  while (leaving == 0 && (joins || trainer.state().step < arguments.steps)) {
    const basin::Status status = joins ? trainer.Join() : trainer.Step();
    joins = status.code() == basin::Code::kEvicted;
    const bool aborted = status.code() == basin::Code::kRoundAborted;
    if (status.code() == basin::Code::kPaused) break;  // It is to leave.
    if (!status.ok() && !joins && !aborted) return Fail(status);
    if (joins) Report("evicted", Quoted("text") + ":" + Trainer::Text(status));
    if (aborted) Report("aborted", Quoted("text") + ":" + Trainer::Text(status));
  }
  Report("end",
         Field("step", trainer.state().step) + "," + Hex("history", trainer.state().history[0]));
  const basin::Status status = trainer.worker().Leave();
  if (!status.ok()) return Fail(status);
  return leaving == 0 ? 0 : 128 + leaving;
}

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/worker_process.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "protocol/version.h"
#include "tests/explore/aggregator_process.h"

namespace basin::explore {
namespace {

// The client's clock stands still, because none of its timers matters here.
const absl::Time kNow = absl::UnixEpoch() + absl::Hours(24);

client::Config MakeConfig(uint32_t job, uint32_t worker, uint32_t life, const Trainers& trainers) {
  client::Config config;
  config.job = NameOfJob(job);
  config.worker = absl::StrCat("w", worker);
  config.nonce = 1 + life * kMaxWorkers + worker;
  config.settings = trainers.settings;
  if (trainers.knows_shards) config.features |= kFeaturePlacement;
  config.streams = 1;
  config.answer_warning = absl::InfiniteDuration();
  config.backoff_limit = absl::ZeroDuration();  // A step of the world decides when it reconnects.
  config.follows_link = false;                  // Its estimates would make equal worlds different.
  return config;
}

// A tensor of whole chunks.
TensorSpec TheTensor(uint32_t chunks) { return {"t", DType::kF32, {chunks * kChunkBytes / 4}}; }

RoundSpec TheSpec() {
  RoundSpec spec;
  spec.op = ReduceOp::kAverage;
  return spec;
}

}  // namespace

WorkerProcess::WorkerProcess(uint32_t job, uint32_t worker, uint32_t life, const Trainers& trainers)
    : Base(MakeConfig(job, worker, life, trainers)),
      worker_(worker),
      life_(life),
      trainers_(&trainers) {}

void WorkerProcess::Start(LaneKind kind) {
  BeginStep();
  Step(client::RegisterTensors{kLane, kind, {TheTensor(trainers_->chunks)}});
  Step(client::DeclareReady{});
}

void WorkerProcess::SessionUp() {
  BeginStep();
  Step(client::SessionUp{});
}

void WorkerProcess::SessionDown() {
  BeginStep();
  Step(client::SessionDown{"explored"});
}

void WorkerProcess::StreamUp(uint32_t stream) {
  BeginStep();
  Step(client::StreamUp{stream});
}

void WorkerProcess::StreamDown(uint32_t stream) {
  BeginStep();
  Step(client::StreamDown{stream, "explored"});
}

bool WorkerProcess::ReportsUnreachable(uint32_t stream) const {
  const client::Streams& streams = core_.session().streams();
  return !streams.Names(stream) || !streams.Of(stream).WhyUnreachable().empty();
}

void WorkerProcess::Take(const Item& item) {
  BeginStep();
  if (const auto* message = std::get_if<ToWorker>(&item)) {
    Step(client::MessageReceived{*message});
  } else {
    Arrive(std::get<ResultFrame>(item), *this);
  }
}

bool WorkerProcess::TrainerCanStep(RoundNumber last_round) const {
  if (trainer_ == TrainerPhase::kBegun || trainer_ == TrainerPhase::kWithout) return true;
  // The last round may have ended without this trainer, which takes its result then.
  const bool more = last_verdict() < last_round || core_.lanes()[0].undelivered.has_value();
  return trainer_ == TrainerPhase::kIdle && more;
}

void WorkerProcess::StepTrainer(bool whole) {
  BeginStep();
  if (trainer_ == TrainerPhase::kWithout) {
    trainer_ = TrainerPhase::kInRound;
    return Step(client::RequestResults{0});
  }
  if (trainer_ == TrainerPhase::kIdle) {
    trainer_ = TrainerPhase::kBegun;
    loads_ = false;
    SetRanks(last_verdict() + 1);
    client::BeginRound begin;
    begin.spec = TheSpec();
    begin.represents = trainers_->node == Node::kRepresents && worker_ == 0 ? 1 : 0;
    Step(begin);
    if (!whole) return;
  }
  if (trainers_->node == Node::kRepresents && worker_ == 1) {
    trainer_ = TrainerPhase::kWithout;
    Step(client::WithdrawRound{0, "w0 has its gradients", true});
    return Step(client::WaitRound{0, absl::InfiniteFuture()});
  }
  trainer_ = TrainerPhase::kInRound;
  const RoundNumber round = last_verdict() + 1;
  Digest digest = 0;
  for (uint32_t chunk = 0; chunk < trainers_->chunks; ++chunk) {
    digest += DigestOf(ContributionOf(worker_, life_, round, chunk));
  }
  Step(client::PushTensor{0, 0, digest});
  Step(client::CommitRound{0});
  SetRanks(round + 1);  // While the round is open, so that hellos report it before a begin does.
  // An early verdict ends the round with the commit; the wait then ends at once.
  Step(client::WaitRound{0, absl::InfiniteFuture()});
}

uint32_t WorkerProcess::TrainersOf(uint32_t worker, RoundNumber round) const {
  if (worker != 0 || trainers_->node == Node::kNone) return 1;
  return trainers_->node == Node::kRepresents || round % 2 == 1 ? 2 : 1;
}

void WorkerProcess::SetRanks(RoundNumber round) {
  if (trainers_->node != Node::kShrinks || worker_ != 0) return;
  Step(client::SetRanks{TrainersOf(worker_, round), 0});
}

RoundNumber WorkerProcess::last_verdict() const { return core_.lanes()[0].last_verdict; }

bool WorkerProcess::Holds(const Applied& version) const {
  if (!core_.has_history()) return false;
  const client::Lane& lane = core_.lanes()[0];
  for (const VerdictRecord& record : lane.verdicts) {
    if (Applied{record.round, record.chain} == version) return true;
  }
  const std::optional<StagedValue>& staged = lane.settlement.staged();
  return staged.has_value() && staged->round == version.round && lane.chain.has_value() &&
         ExtendChain(*lane.chain, staged->round, staged->value) == version.chain;
}

void WorkerProcess::BeginStep() {
  outputs_.clear();
  applied_.clear();
  wrong_.clear();
}

void WorkerProcess::Step(const client::Event& event) {
  std::vector<client::Action> actions;
  core_.Step(event, kNow, actions);
  opens_ = false;
  for (client::Action& action : actions) CarryOut(action, *this);
  if (loads_ && core_.lanes()[0].undelivered.has_value()) {
    Wrong("its first round has a verdict before it has the state of before that round");
  }
  // A data stream opens as soon as the client asks for it: a late opening would look the same as
  // late frames.
  if (opens_) Step(client::StreamUp{0});
  if (declare_ready_) {
    declare_ready_ = false;
    Step(client::DeclareReady{});
  }
}

void WorkerProcess::Wrong(std::string what) {
  if (wrong_.empty()) wrong_ = std::move(what);
}

void WorkerProcess::Do(const client::OpenStream& open) {
  const bool to_shard = open.shard.shard != kCoordinatorShard;
  const uint32_t slot = to_shard ? SlotOf(open.shard.endpoint) : 0;
  outputs_.push_back({Kind::kOpenStream, open.stream, slot});
  opens_ = opens_ || !to_shard;
}

void WorkerProcess::Do(const client::RoundRejected& rejected) {
  Wrong(absl::StrCat("its contribution was rejected: ", rejected.error.text));
}

void WorkerProcess::Do(const client::Refused& refused) {
  Wrong(absl::StrCat("a call of its trainer was refused: ", refused.error.text));
}

void WorkerProcess::Do(const client::Fatal& fatal) {
  trainer_ = TrainerPhase::kStopped;
  conflict_ = fatal.error.code == ErrorCode::kLineageConflict;
  if (!conflict_) Wrong(absl::StrCat("it was told to stop: ", fatal.error.text));
}

void WorkerProcess::Do(const client::Deliver& deliver) {
  const VerdictRecord& record = deliver.record;
  applied_.push_back({record.round, record.chain});
  if (trainer_ != TrainerPhase::kInRound && trainer_ != TrainerPhase::kWithout) {
    Wrong(absl::StrCat("round ", record.round, " is delivered to a trainer that does not wait"));
  }
  trainer_ = TrainerPhase::kIdle;
  uint64_t mask = 0;
  uint32_t trainers = 0;
  for (const Contributor& contributor : record.value.contributors) {
    const auto worker = static_cast<uint32_t>(contributor.worker[1] - '0');
    mask += MaskOf(worker);
    trainers += TrainersOf(worker, record.round);
  }
  if (record.value.divisor != trainers) {
    Wrong(absl::StrCat("round ", record.round, " is divided by ", record.value.divisor,
                       ", but holds the gradients of ", trainers, " trainers"));
  }
  const world::StagedChunks<Chunk>& staged = shell_.staged(0);
  Digest digest = 0;
  for (uint32_t i = 0; i < trainers_->chunks; ++i) {
    const Chunk* chunk = staged.Find(0, i);
    if (staged.round != record.round || chunk == nullptr || chunk->mask != mask) {
      Wrong(absl::StrCat("it applies round ", record.round, " with the bytes of round ",
                         staged.round, " from ", DescribeMask(chunk == nullptr ? 0 : chunk->mask),
                         " where the record counts ", DescribeMask(mask)));
    }
    if (chunk != nullptr) digest += DigestOf(*chunk);
  }
  if (digest != record.value.digest) {
    Wrong(absl::StrCat("it applies round ", record.round, " with other bytes than were decided"));
  }
}

void WorkerProcess::Do(const client::FailRound& fail) {
  switch (fail.error.code) {
    case ErrorCode::kRoundAborted:
      trainer_ = TrainerPhase::kIdle;
      break;
    case ErrorCode::kEvicted:
      trainer_ = TrainerPhase::kWaiting;
      declare_ready_ = true;
      break;
    case ErrorCode::kLineageConflict:
      break;  // Fatal follows.
    default:
      Wrong(absl::StrCat("round ", fail.round, " fails: ", fail.error.text));
  }
}

void WorkerProcess::Do(const client::MembershipNow& place) {
  // With generation zero, its incarnation has ended, and it does not know its next membership yet.
  if (place.membership.generation.term > 0) {
    if (place.membership.generation < generation_) {
      Wrong(absl::StrCat("its generation goes back from ", ToString(generation_), " to ",
                         ToString(place.membership.generation)));
    }
    generation_ = place.membership.generation;
  }
  if (place.role == Role::kMember) {
    if (trainer_ == TrainerPhase::kWaiting) {
      trainer_ = TrainerPhase::kIdle;
      // A script that makes calls loads no state: it stages a call that was prepared before it
      // joined.
      loads_ = place.donor.has_value() && core_.lanes()[0].kind == LaneKind::kGradient;
    }
  } else if (trainer_ != TrainerPhase::kWaiting && trainer_ != TrainerPhase::kStopped) {
    trainer_ = TrainerPhase::kWaiting;
    declare_ready_ = true;
  }
}

}  // namespace basin::explore

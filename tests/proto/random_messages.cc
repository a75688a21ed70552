// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/proto/random_messages.h"

#include <cmath>
#include <limits>
#include <set>

namespace basin::testing {

uint64_t RandomMessages::Number() {
  switch (Below(4)) {
    case 0:
      return Below(3);
    case 1:
      return std::numeric_limits<uint64_t>::max() - Below(2);
    default:
      return random_() >> Below(64);
  }
}

uint64_t RandomMessages::UpTo(uint64_t bound) {
  switch (Below(4)) {
    case 0:
      return 0;
    case 1:
      return bound;
    default:
      return Below(bound + 1);
  }
}

std::string RandomMessages::Bytes(size_t size) {
  std::string out(size, '\0');
  for (char& byte : out) byte = static_cast<char>(random_());
  return out;
}

std::string RandomMessages::Label() {
  constexpr char kEnds[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr char kInside[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
  std::string out(1 + UpTo(kMaxLabelBytes - 1), '\0');
  for (char& c : out) c = kInside[Below(sizeof(kInside) - 1)];
  out.front() = kEnds[Below(sizeof(kEnds) - 1)];
  out.back() = kEnds[Below(sizeof(kEnds) - 1)];
  return out;
}

std::string RandomMessages::Name() {
  constexpr const char* kPieces[] = {"layer", ".", "weight", "0", " ", "é", "層", "𝛁", "/", "<b>"};
  std::string out;
  const size_t size = 1 + UpTo(kMaxNameBytes - 1);
  while (true) {
    const std::string piece = kPieces[Below(std::size(kPieces))];
    if (out.size() + piece.size() > size) break;
    out += piece;
  }
  return out.empty() ? "w" : out;
}

std::string RandomMessages::Text() { return Coin() ? "" : Name(); }

std::optional<WorkerId> RandomMessages::MaybeWorker() {
  return Coin() ? std::optional<WorkerId>(Label()) : std::nullopt;
}

std::vector<WorkerId> RandomMessages::Workers() {
  std::set<WorkerId> ids;
  for (size_t i = Below(5); i > 0; --i) ids.insert(Label());
  std::vector<WorkerId> out(ids.begin(), ids.end());
  std::shuffle(out.begin(), out.end(), random_);
  return out;
}

std::vector<TensorSpec> RandomMessages::Specs() {
  std::vector<TensorSpec> out;
  std::set<std::string> names;
  for (TensorSpec& spec : List<TensorSpec>(4)) {
    if (names.insert(spec.name).second) out.push_back(std::move(spec));
  }
  return out;
}

absl::Duration RandomMessages::MakeDuration() {
  return Below(4) == 0 ? absl::ZeroDuration() : absl::Nanoseconds(Below(1'000'000'000'000));
}

double RandomMessages::Scale() {
  switch (Below(4)) {
    case 0:
      return 1;
    case 1:
      return std::numeric_limits<double>::denorm_min();
    case 2:
      return std::numeric_limits<double>::max();
    default:
      return std::ldexp(1 + static_cast<double>(Below(1000)) / 1000,
                        static_cast<int>(Below(200)) - 100);
  }
}

void RandomMessages::Fill(Generation* out) { *out = {Number(), Number()}; }
void RandomMessages::Fill(Incarnation* out) { *out = {Number(), Number()}; }
void RandomMessages::Fill(Ballot* out) { *out = {Number(), Number()}; }

void RandomMessages::Fill(Error* out) {
  *out = {Enum(ErrorCode::kInvalidArgument, ErrorCode::kNotFound), Text(),
          Enum(AbortCause::kUnspecified, AbortCause::kMismatch)};
}

uint32_t RandomMessages::Ranks() {
  return Coin() ? 1 : static_cast<uint32_t>(1 + UpTo(kMaxRanks - 1));
}

void RandomMessages::Fill(Membership* out) {
  std::vector<WorkerId> ids = Workers();
  std::vector<uint32_t> ranks;
  for (size_t i = 0; i < ids.size(); ++i) ranks.push_back(Ranks());
  *out = {Make<Generation>(), MemberList::WithRanks(std::move(ids), std::move(ranks))};
}

void RandomMessages::Fill(TensorSpec* out) {
  out->name = Name();
  out->dtype = Enum(DType::kF64, DType::kF8E5M2);
  uint64_t left = kMaxTensorBytes / ElementSize(out->dtype);
  for (size_t i = UpTo(kMaxRank); i > 0; --i) {
    const uint64_t size = left == 0 ? Number() : UpTo(Coin() ? left : std::min<uint64_t>(left, 3));
    out->shape.push_back(size);
    left = size == 0 ? 0 : left / size;
  }
}

void RandomMessages::Fill(ChunkRange* out) {
  out->tensor = Tensor();
  out->first = static_cast<uint32_t>(UpTo(kMaxChunksPerTensor - 1));
  out->count = static_cast<uint32_t>(1 + UpTo(kMaxChunksPerTensor - out->first - 1));
}

void RandomMessages::Fill(Bitmap* out) {
  *out = Bitmap(Below(8) == 0 ? kMaxTensors : Below(100));
  for (size_t i = 0; i < out->size(); ++i) {
    if (Coin()) out->Set(i);
  }
}

void RandomMessages::Fill(BlobKey* out) { *out = {Name(), Name(), Number()}; }

void RandomMessages::Fill(RoundSpec* out) {
  out->op = Enum(ReduceOp::kSum, ReduceOp::kProduct);
  out->prescale = Coin() ? Scale() : -Scale();
  out->postscale = Coin() ? Scale() : -Scale();
  out->predivide = Scale();
  out->auto_predivide = Coin();
  out->kind = Enum(ContributionKind::kMean, ContributionKind::kSum);
  out->weight_by = Enum(WeightBy::kNone, WeightBy::kMicroBatches);
  out->denominator = Enum(Denominator::kAll, Denominator::kPresent);
  out->loss_scale = Scale();
  out->layout = Number();
}

void RandomMessages::Fill(Counts* out) {
  if (Coin()) out->samples = Number();
  if (Coin()) out->tokens = Number();
  if (Coin()) out->micro_batches = Number();
}

void RandomMessages::Fill(SampleRange* out) {
  out->end = std::max<uint64_t>(1, Number());
  out->begin = Below(out->end);
}

std::vector<SampleRange> RandomMessages::Positions(uint64_t samples) {
  IntervalSet positions;
  for (uint64_t i = Below(4); i > 0 && samples > 0; --i) {
    const uint64_t begin = Below(samples);
    positions.Add({begin, begin + 1 + UpTo(samples - begin - 1)});
  }
  return positions.Runs();
}

void RandomMessages::Fill(SampleEpoch* out) {
  *out = {Number(), 1 + UpTo(kMaxEpochSamples - 1), Number(), Coin() ? 0 : UpTo(kMaxEpochSamples)};
}

void RandomMessages::Fill(SampleProgress* out) {
  Fill(&out->epoch);
  out->ranges = Positions(out->epoch.samples);
}

void RandomMessages::Fill(RoundSamples* out) {
  Fill(&out->epoch);
  out->ranges = Positions(out->epoch.samples);
  out->resumed = Positions(out->epoch.samples);
  out->committed = UpTo(out->epoch.samples);
}

template <typename Message>
void RandomMessages::FillPlan(Message* out) {
  out->local_reduction = static_cast<LocalReduction>(Below(3));
  std::set<WorkerId> others;  // None is named twice.
  for (size_t i = Below(4); i > 0; --i) others.insert(Label());
  out->reduced_with.assign(others.begin(), others.end());
}

void RandomMessages::Fill(Contributor* out) {
  *out = {Label(), Make<Incarnation>(), Number() % (kMaxCount + 1), std::nullopt, Ranks()};
  if (Coin()) out->squared_norm = Scale();
  out->deferred = static_cast<uint32_t>(Below(kMaxRanks));
  FillPlan(out);
}

void RandomMessages::Fill(TensorDivisor* out) { *out = {Tensor(), Number()}; }
void RandomMessages::Fill(NonFinite* out) { *out = {Label(), Tensor(), Number()}; }

void RandomMessages::Fill(RoundFacts* out) {
  out->squared_norm = Below(4) == 0 ? std::numeric_limits<double>::infinity() : Scale();
  out->overflow = Coin();
  out->nonfinite = Maybe<NonFinite>();
  const auto total = [this] { return Number() % (kMaxTotalCount + 1); };
  if (Coin()) out->totals.samples = total();
  if (Coin()) out->totals.tokens = total();
  if (Coin()) out->totals.micro_batches = total();
  for (uint64_t i = Below(4); i > 0; --i) out->tensor_squared_norms.push_back(Scale());
}

void RandomMessages::Fill(RoundValue* out) {
  out->outcome = Enum(Outcome::kCommitted, Outcome::kAborted);
  out->reason = Text();
  out->abort_cause = Enum(AbortCause::kUnspecified, AbortCause::kMismatch);
  if (out->outcome == Outcome::kCommitted || Coin()) Fill(&out->spec);
  out->contributors = List<Contributor>(4);
  std::sort(out->contributors.begin(), out->contributors.end(),
            [](const Contributor& a, const Contributor& b) { return a.worker < b.worker; });
  out->contributors.erase(
      std::unique(out->contributors.begin(), out->contributors.end(),
                  [](const Contributor& a, const Contributor& b) { return a.worker == b.worker; }),
      out->contributors.end());
  out->dropped = Workers();
  out->late = Workers();
  out->late_carries = Coin();
  out->divisor = Number();
  out->tensor_divisors = List<TensorDivisor>();
  out->layout_version = static_cast<uint32_t>(UpTo(kMaxTensors));
  out->digest = Number();
  Fill(&out->facts);
  out->generation = Make<Generation>();
  out->contract_version = static_cast<uint32_t>(UpTo(1000));
  out->world_size = static_cast<uint32_t>(UpTo(kMaxTrainers));
  out->decision = Number();
  out->samples = Maybe<RoundSamples>();
}

void RandomMessages::Fill(VerdictRecord* out) {
  *out = {Round(), Make<Ballot>(), Make<Ballot>(), Make<RoundValue>(), Make<Membership>(),
          Number()};
}

void RandomMessages::Fill(JobSettings* out) {
  out->max_workers = static_cast<uint32_t>(UpTo(kMaxWorkers));
  out->start_workers =
      static_cast<uint32_t>(UpTo(out->max_workers == 0 ? kMaxWorkers : out->max_workers));
  const uint32_t most = out->start_workers != 0 ? out->start_workers
                        : out->max_workers != 0 ? out->max_workers
                                                : kMaxWorkers;
  out->min_workers = static_cast<uint32_t>(UpTo(most));
}

// ---- worker -> aggregator

void RandomMessages::Fill(StagedValue* out) {
  *out = {Round(), Make<Ballot>(), Make<Ballot>(), Make<RoundValue>()};
}

void RandomMessages::Fill(LaneHistory* out) {
  out->name = Name();
  out->kind = Enum(LaneKind::kGradient, LaneKind::kCall);
  out->lane = Lane();
  out->layout = Specs();
  out->verdicts = List<VerdictRecord>(kMaxRememberedVerdicts);
  out->last_verdict = Number();
  out->chain = Number();
  out->staged = Maybe<StagedValue>();
  out->begun = Number();
  Fill(&out->held_ballot);
  out->held = List<ChunkRange>();
  if (Coin()) Fill(&out->committed);
  if (Coin()) Fill(&out->leased);
  out->resumed = Positions(out->leased.epoch.samples);
  out->let_go = Coin();
}

void RandomMessages::Fill(Hello* out) {
  out->job = Coin() ? Label() : Label() + "/" + Label();
  if (Coin()) out->run = "0b8a7c1e-4d5f:run_7.2";
  out->worker = Label();
  out->nonce = std::max<uint64_t>(1, Number());
  out->protocol_version = static_cast<uint32_t>(1 + Below(3));
  out->contract_version = static_cast<uint32_t>(1 + Below(3));
  out->features = Number();
  out->fresh = Coin();
  out->from_start = Coin();
  out->lacks_state = Coin();
  Fill(&out->settings);
  Fill(&out->incarnation);
  Fill(&out->membership);
  out->lanes = List<LaneHistory>(2);
  out->ranks = Ranks();
  if (Coin()) out->group = {Label(), static_cast<uint32_t>(1 + UpTo(kMaxGroup - 1))};
  if (Coin()) out->software = "basin 0.1.0, " + Label();
}

void RandomMessages::Fill(Ready* out) { *out = {Number(), Number()}; }
void RandomMessages::Fill(RoundWait* out) { *out = {Lane(), std::max<uint64_t>(1, Number())}; }
void RandomMessages::Fill(Heartbeat* out) { *out = {Number(), List<RoundWait>()}; }

void RandomMessages::Fill(Register* out) {
  *out = {Name(), Enum(LaneKind::kGradient, LaneKind::kCall), Specs()};
}

void RandomMessages::Fill(LayoutSeen* out) {
  *out = {Lane(), static_cast<uint32_t>(UpTo(kMaxTensors))};
}

void RandomMessages::Fill(Begin* out) {
  *out = {Lane(),
          Round(),
          Make<RoundSpec>(),
          Make<Counts>(),
          Number(),
          List<SampleRange>(),
          Ranks(),
          static_cast<uint32_t>(Below(kMaxRanks))};
  FillPlan(out);
  out->compares_step = Coin();
  if (Coin()) out->sample_epoch = Number();
  if (Coin()) out->call = Label();
  out->optimizer = Number();
  for (size_t i = Below(5); i > 0; --i) out->optimizer_numbers.push_back("lr=0.1 of " + Name());
  out->deferred = static_cast<uint32_t>(Below(kMaxRanks));
}

void RandomMessages::Fill(Skip* out) {
  *out = {Lane(), Round(), {}};
  std::set<TensorIndex> tensors;  // None is named twice.
  for (size_t i = Below(5); i > 0; --i) tensors.insert(Tensor());
  out->tensors.assign(tensors.begin(), tensors.end());
}

void RandomMessages::Fill(Commit* out) {
  *out = {Lane(),   Round(), static_cast<uint32_t>(UpTo(kMaxTensors)), Make<Bitmap>(), Number(),
          Number(), Number()};
  if (Coin()) out->squared_norm = Scale();
}

void RandomMessages::Fill(Withdraw* out) { *out = {Lane(), Round(), Text(), Coin()}; }
void RandomMessages::Fill(Staged* out) { *out = {Lane(), Round(), Make<Ballot>()}; }

void RandomMessages::Fill(ResultAck* out) {
  *out = {Lane(), Round(), Make<Ballot>(), List<ChunkRange>()};
}

void RandomMessages::Fill(Need* out) {
  *out = {Lane(), Round(), Make<Ballot>(), List<ChunkRange>()};
}

void RandomMessages::Fill(Busy* out) {
  *out = {Text(), Coin() ? absl::InfiniteDuration() : MakeDuration()};
}

void RandomMessages::Fill(Leave* out) { *out = {Coin()}; }

void RandomMessages::Fill(Announce* out) { *out = {Make<BlobKey>(), Make<TensorSpec>(), Number()}; }

void RandomMessages::Fill(Get* out) {
  out->key = Make<BlobKey>();
  out->expected = Maybe<TensorSpec>();
  out->source = MaybeWorker();
  out->first = static_cast<uint32_t>(UpTo(kMaxChunksPerTensor));
  out->count = static_cast<uint32_t>(UpTo(kMaxChunksPerTensor - out->first));
  out->timeout = Coin() ? absl::InfiniteDuration() : MakeDuration();
}

void RandomMessages::Fill(LeaseSamples* out) {
  *out = {Lane(),
          Number(),
          Make<SampleEpoch>(),
          std::max<uint64_t>(1, Number()),
          {},
          UpTo(kMaxEpochSamples)};
  out->resumed = Positions(out->epoch.samples);
}

void RandomMessages::Fill(ReturnSamples* out) {
  *out = {Lane(), Number(), Positions(kMaxEpochSamples)};
}

void RandomMessages::Fill(ReportBatch* out) {
  *out = {Lane(), Round(), UpTo(kMaxEpochSamples), 1 + UpTo(kMaxEpochSamples - 1)};
}

void RandomMessages::Fill(LetGo* out) { *out = {Lane(), Number()}; }

void RandomMessages::Fill(ShardUnreachable* out) {
  *out = {static_cast<ShardId>(1 + UpTo(UINT32_MAX - 1)), Coin() ? Text() : ""};
}

// ---- aggregator -> worker

void RandomMessages::Fill(Placement* out) {
  const auto shards = static_cast<ShardId>(1 + Below(4));
  *out = {Round(), Number(), {}, {}};
  for (ShardId shard = 0; shard < shards; ++shard) {
    if (shard == 0) {
      out->shards.emplace_back();
    } else {
      out->shards.push_back({shard, Label(), "host:29600"});
      if (Coin()) out->lost.push_back(shard);
    }
  }
}

void RandomMessages::Fill(RoundPlacement* out) {
  *out = {Round(), static_cast<uint32_t>(UpTo(kMaxTensors))};
}

void RandomMessages::Fill(StartRound* out) {
  *out = {Name(), Lane(), Round(), Number()};
  if (Coin()) Fill(&out->committed);
  if (Coin()) Fill(&out->placement);
}

void RandomMessages::Fill(OpenRound* out) {
  *out = {Lane(),
          Round(),
          Enum(RoundPhase::kIdle, RoundPhase::kPrepared),
          Make<Ballot>(),
          List<ChunkRange>(),
          Number()};
}

void RandomMessages::Fill(LaneLayout* out) {
  out->lane = Lane();
  out->name = Name();
  out->kind = Enum(LaneKind::kGradient, LaneKind::kCall);
  out->tensors = Specs();
  out->first = static_cast<uint32_t>(UpTo(kMaxTensors - out->tensors.size()));
  out->round = Number();
  out->window = Number();
  if (Coin()) Fill(&out->placement);
}

void RandomMessages::Fill(LastVerdicts* out) {
  *out = {Lane(), List<VerdictRecord>(kMaxRememberedVerdicts)};
}

void RandomMessages::Fill(Welcome* out) {
  out->token = std::max<uint64_t>(1, Number());
  Fill(&out->incarnation);
  if (Coin()) out->run = "run-1";
  out->term = std::max<uint64_t>(1, Number());
  out->role = Enum(Role::kJoiner, Role::kMember);
  Fill(&out->membership);
  Fill(&out->settings);
  out->frame_bytes = (1 + UpTo(kMaxChunksPerFrame - 1)) * kChunkBytes;
  out->heartbeat = MakeDuration() + absl::Nanoseconds(1);
  out->layouts = List<LaneLayout>();
  out->open = List<OpenRound>();
  out->verdicts = List<LastVerdicts>(2);
  out->contract_version = static_cast<uint32_t>(1 + Below(3));
  out->features = Number();
  out->job_runs = Coin();
  out->placements = List<Placement>(2);
}

void RandomMessages::Fill(MembershipChanged* out) {
  *out = {Make<Membership>(), Enum(Role::kJoiner, Role::kMember), MaybeWorker(),
          List<StartRound>()};
}

void RandomMessages::Fill(Credit* out) {
  *out = {Lane(), Round(), Number(), List<ChunkRange>(), List<ChunkRange>()};
  if (Coin()) out->shard = static_cast<ShardId>(Number());
}

void RandomMessages::Fill(Pull* out) {
  *out = {Lane(), Round(), List<ChunkRange>(), List<ChunkRange>(), Number()};
}

void RandomMessages::Fill(AttemptRestarted* out) {
  *out = {Lane(), Round(), Make<Ballot>(), Text(), List<ChunkRange>(), Number()};
}

void RandomMessages::Fill(Prepared* out) {
  *out = {Lane(), Round(), Make<Ballot>(), Make<Ballot>(), Make<RoundValue>()};
}

void RandomMessages::Fill(Supply* out) {
  *out = {Lane(), Round(), Make<Ballot>(), List<ChunkRange>()};
}

void RandomMessages::Fill(Verdict* out) {
  *out = {Lane(), Make<VerdictRecord>(), MaybeWorker()};
  if (Coin()) Fill(&out->placement);
}

void RandomMessages::Fill(Rejected* out) {
  *out = {Make<Error>(), std::nullopt, Number(), "", ""};
  if (Coin()) out->lane = Lane();
  if (Coin()) out->lane_name = Name();
  if (Coin()) out->tensor = Name();
}

void RandomMessages::Fill(Ended* out) { *out = Coin() ? Ended{} : Ended{Make<Error>()}; }
void RandomMessages::Fill(Drain* out) { *out = {Coin()}; }

void RandomMessages::Fill(Ask* out) {
  const ChunkRange range = Make<ChunkRange>();
  *out = {Make<BlobKey>(), range.first, range.count};
}

void RandomMessages::Fill(BlobKnown* out) {
  *out = {Make<BlobKey>(), Make<TensorSpec>(), Number(), Label()};
}

void RandomMessages::Fill(GetFailed* out) { *out = {Make<BlobKey>(), Make<Error>()}; }
void RandomMessages::Fill(HeldUp* out) { *out = {Lane(), Round(), Text()}; }

void RandomMessages::Fill(SamplesLeased* out) {
  *out = {Lane(),
          Number(),
          Number(),
          Enum(LeaseOutcome::kLeased, LeaseOutcome::kRefused),
          Positions(kMaxEpochSamples),
          Positions(kMaxEpochSamples)};
  if (out->outcome == LeaseOutcome::kRefused) Fill(&out->error);
}

void RandomMessages::Fill(BatchReported* out) {
  *out = {Lane(), Round(), Number(), Coin()};
  if (Coin()) Fill(&out->error);
}

void RandomMessages::Fill(LaneGone* out) { *out = {Lane()}; }

}  // namespace basin::testing

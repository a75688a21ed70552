// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/core/harness.h"

#include <algorithm>

#include "protocol/counted.h"
#include "protocol/overloaded.h"

namespace basin::aggregator {
namespace {

std::vector<Chunk> ChunksOf(const ChunkRange& range) {
  std::vector<Chunk> chunks;
  for (uint32_t i = 0; i < range.count; ++i) chunks.emplace_back(range.tensor, range.first + i);
  return chunks;
}

uint32_t ChunksIn(const TensorSpec& spec) { return ChunkCount(*TensorBytes(spec)); }

}  // namespace

TensorSpec Tensor(const std::string& name, uint64_t chunks) {
  return {name, DType::kF32, {chunks * (kChunkBytes / 4)}};
}

JobSettings Settings(uint32_t min, uint32_t max, uint32_t start) { return {min, max, start}; }

RoundSpec Spec(ReduceOp op, Denominator denominator) {
  RoundSpec spec;
  spec.op = op;
  spec.denominator = denominator;
  if (op == ReduceOp::kWeightedAverage) spec.weight_by = WeightBy::kSamples;
  return spec;
}

Digest DigestOf(Chunk chunk, uint64_t value) {
  return MixChain(MixChain(MixChain(1, chunk.first), chunk.second), value);
}

Reduced Numbers::Reduce(const RoundSpec&, uint64_t divisor,
                        const std::vector<world::Given<Reduced>>& given) {
  Reduced reduced{0, divisor};
  for (const auto& [contributor, chunk] : given) reduced.sum += chunk.sum * contributor.weight;
  return reduced;
}

// ---- TestWorker

TestWorker::TestWorker(Cluster* cluster, WorkerId worker, uint64_t number)
    : id(std::move(worker)),
      nonce(1000 + number),
      value(number),
      settings(cluster->settings),
      cluster_(cluster) {}

const VerdictRecord& TestWorker::verdict(const std::string& name) {
  static const VerdictRecord none;
  LaneView& view = lane(name);
  if (!view.verdicts.empty()) return view.verdicts.back();
  ADD_FAILURE() << id << " was told no verdict of lane " << name;
  return none;
}

int TestWorker::rank() const {
  const auto it = std::find(membership.members.begin(), membership.members.end(), id);
  return it == membership.members.end() ? -1 : static_cast<int>(it - membership.members.begin());
}

ErrorCode TestWorker::rejected() const {
  const std::vector<Rejected> all = All<Rejected>();
  return all.empty() ? ErrorCode::kOk : all.back().error.code;
}

TestWorker::LaneView* TestWorker::ByIndex(LaneIndex index) {
  for (auto& [name, view] : lanes) {
    if (view.index == index) return &view;
  }
  return nullptr;
}

void TestWorker::Send(ToAggregator message) {
  if (session == 0) return;
  cluster_->Step(MessageReceived{session, std::move(message)});
}

Hello TestWorker::MakeHello() const {
  Hello hello;
  hello.job = job;
  hello.run = run;
  hello.worker = id;
  hello.nonce = nonce;
  hello.fresh = fresh;
  hello.settings = settings;
  hello.features = features;
  hello.ranks = ranks;
  hello.group = group;
  hello.incarnation = incarnation;
  hello.from_start = from_start;
  if (role != Role::kMember) return hello;  // It has no history until it is one.
  hello.membership = membership;
  hello.lacks_state = lacks_state;
  for (const auto& [name, view] : lanes) {
    LaneHistory history;
    history.name = name;
    history.kind = view.kind;
    history.lane = view.index;
    history.layout = view.tensors;
    history.verdicts = view.verdicts;
    if (history.verdicts.size() > 2) {
      history.verdicts.erase(history.verdicts.begin(), history.verdicts.end() - 2);
    }
    history.last_verdict = view.last;
    history.chain = view.chain;
    history.staged = view.staged;
    history.begun = view.begun.has_value() ? view.next() : 0;
    history.let_go = view.let_go;
    if (view.result_round == view.next()) {
      history.held_ballot = view.result_ballot;
      for (const auto& [chunk, reduced] : view.results) {
        history.held.push_back({chunk.first, chunk.second, 1});
      }
    }
    hello.lanes.push_back(std::move(history));
  }
  return hello;
}

void TestWorker::Connect() { Connect(MakeHello()); }

void TestWorker::Connect(const Hello& hello) {
  session = cluster_->NewSession();
  ended.reset();
  for (auto& [name, view] : lanes) view.prepared.reset();
  cluster_->Step(SessionOpened{session, 7000 + session, address});
  Send(hello);
}

void TestWorker::Ready(uint64_t step_label, uint64_t state_hash) {
  Send(basin::Ready{step_label, state_hash});
}

void TestWorker::Register(const std::vector<TensorSpec>& tensors, const std::string& lane,
                          LaneKind kind) {
  named.insert(lane);
  Send(basin::Register{lane, kind, tensors});
}

void TestWorker::Close() {
  if (session != 0) cluster_->Step(SessionLost{std::exchange(session, 0), true});
}

void TestWorker::Cut() {
  if (session != 0) cluster_->Step(SessionLost{std::exchange(session, 0), false});
}

void TestWorker::Restart() {
  nonce += 1000000;
  Forget();
}

void TestWorker::Forget() {
  incarnation = Incarnation{};
  from_start = false;
  membership = Membership{};
  role = Role::kJoiner;
  lanes.clear();
}

void TestWorker::Begin(const RoundSpec& spec, const std::string& name, const Counts& counts) {
  LaneView& view = lane(name);
  lacks_state = false;
  view.begun = basin::Begin{
      view.index, view.next(),     spec,         counts,          step.value_or(0), {}, ranks,
      represents, local_reduction, reduced_with, step.has_value()};
  view.begun->call = call;
  view.begun->optimizer = optimizer;
  view.begun->optimizer_numbers = optimizer_numbers;
  view.begun->deferred = deferred;
  view.skipped.reset();
  view.committed.reset();
  view.pushed.clear();
  Send(*view.begun);
}

void TestWorker::SendTensors(RoundNumber round, const ChunkRanges& ranges,
                             const std::string& name) {
  if (session == 0) return;
  FrameReceived frame;
  frame.session = session;
  frame.lane = lane(name).index;
  frame.round = round;
  frame.ranges = ranges;
  for (const uint64_t size : SizesOf(frame.lane, ranges)) frame.bytes += size;
  world::ForEachChunk(ranges, [&](TensorIndex tensor, uint32_t chunk) {
    frame.digests.push_back(DigestOf({tensor, chunk}, value));
  });
  cluster_->Step(std::move(frame), world::Chunks<Reduced>(CountChunks(ranges), Reduced{value, 0}));
}

std::vector<uint64_t> TestWorker::SizesOf(LaneIndex index, const ChunkRanges& ranges) const {
  std::vector<uint64_t> sizes;
  for (const auto& [name, view] : lanes) {
    if (view.index != index) continue;
    world::ForEachChunk(ranges, [&, &tensors = view.tensors](TensorIndex tensor, uint32_t chunk) {
      if (tensor < tensors.size()) {
        sizes.push_back(ChunkSize(*TensorBytes(tensors[tensor]), chunk));
      }
    });
  }
  return sizes;
}

std::vector<std::pair<ShardId, ChunkRange>> TestWorker::PartsOf(const LaneView& view,
                                                                const ChunkRange& range) const {
  const auto placement = placements.find(view.placement.number);
  if (placement == placements.end()) return {{kCoordinatorShard, range}};
  Layout layout;
  for (const TensorSpec& tensor : view.tensors) layout.Append(tensor);
  std::vector<std::pair<ShardId, ChunkRange>> parts;
  Shares(placement->second, layout, view.placement.layout)
      .Split(layout, range,
             [&](ShardId shard, const ChunkRange& part) { parts.emplace_back(shard, part); });
  return parts;
}

void TestWorker::SendFrame(RoundNumber round, ChunkRange range, const std::string& name) {
  if (session == 0) return;
  const auto parts = PartsOf(lane(name), range);
  for (const auto& [shard, part] : parts) SendFrameTo(shard, round, part, name);
}

void TestWorker::SendFrameTo(ShardId shard, RoundNumber round, ChunkRange range,
                             const std::string& name) {
  LaneView& view = lane(name);
  FrameReceived frame;
  frame.shard = shard;
  frame.session = session;
  frame.lane = view.index;
  frame.round = round;
  frame.ranges = {range};
  const uint64_t bytes = *TensorBytes(view.tensors[range.tensor]);
  for (const Chunk& chunk : ChunksOf(range)) {
    frame.digests.push_back(DigestOf(chunk, value));
    frame.bytes += ChunkSize(bytes, chunk.second);
  }
  cluster_->Step(std::move(frame), world::Chunks<Reduced>(range.count, Reduced{value, 0}));
}

void TestWorker::Push(TensorIndex tensor, uint32_t first, uint32_t count, const std::string& name) {
  LaneView& view = lane(name);
  for (const Chunk& chunk : ChunksOf({tensor, first, count})) view.pushed.insert(chunk);
  SendFrame(view.next(), {tensor, first, count}, name);
}

void TestWorker::PushTensor(TensorIndex tensor, const std::string& name) {
  const uint32_t chunks = ChunksIn(lane(name).tensors[tensor]);
  const auto frame = static_cast<uint32_t>(cluster_->config.frame_bytes / kChunkBytes);
  for (uint32_t first = 0; first < chunks; first += frame) {
    Push(tensor, first, std::min(frame, chunks - first), name);
  }
}

void TestWorker::Skip(const std::vector<TensorIndex>& tensors, const std::string& name) {
  LaneView& view = lane(name);
  view.skipped = basin::Skip{view.index, view.next(), tensors};
  Send(*view.skipped);
}

Commit TestWorker::MakeCommit(const std::string& name) {
  const LaneView& view = lane(name);
  const auto version = static_cast<uint32_t>(view.tensors.size());
  basin::Commit commit{view.index, view.next(), version, Bitmap(version), 0, 0, 0};
  for (const Chunk& chunk : view.pushed) {
    commit.present.Set(chunk.first);
    commit.chunks += 1;
    commit.bytes += ChunkSize(*TensorBytes(view.tensors[chunk.first]), chunk.second);
    commit.digest += DigestOf(chunk, value);
  }
  commit.squared_norm = squared_norm;
  return commit;
}

void TestWorker::Commit(const std::string& name) {
  LaneView& view = lane(name);
  view.committed = MakeCommit(name);
  Send(*view.committed);
}

void TestWorker::Withdraw(const std::string& reason, const std::string& name,
                          bool without_results) {
  LaneView& view = lane(name);
  Send(basin::Withdraw{view.index, view.next(), reason, without_results});
}

void TestWorker::Stage(const std::string& name) {
  LaneView& view = lane(name);
  ASSERT_TRUE(view.prepared.has_value()) << id << " was told of no value to stage";
  const Prepared& prepared = *view.prepared;
  view.staged = StagedValue{prepared.round, prepared.ballot, prepared.value_ballot, prepared.value};
  Send(basin::Staged{view.index, prepared.round, prepared.ballot});
}

void TestWorker::Contribute(const RoundSpec& spec, const std::string& name,
                            const std::set<TensorIndex>& absent, const Counts& counts) {
  Begin(spec, name, counts);
  for (TensorIndex tensor = 0; tensor < lane(name).tensors.size(); ++tensor) {
    if (absent.count(tensor) == 0) PushTensor(tensor, name);
  }
  Commit(name);
}

void TestWorker::OnEnded(const Error& error) {
  session = 0;
  ended = error;
}

void TestWorker::TakeResults(const Shell::Result& frame) {
  const auto& [lane_index, round, ballot, ranges, chunks] = frame;
  LaneView* view = ByIndex(lane_index);
  if (view == nullptr) {
    ADD_FAILURE() << id << " got results of a lane it does not know";
    return;
  }
  if (round < view->next()) return;
  if (round > view->result_round || view->result_ballot < ballot) {
    view->results.clear();
    view->result_round = round;
    view->result_ballot = ballot;
  }
  if (!(view->result_ballot == ballot)) return;
  world::ForEachChunk(ranges, [&, &all = frame](TensorIndex tensor, uint32_t chunk) {
    view->results[{tensor, chunk}] = all.At(tensor, chunk);
  });
  const LaneIndex index = view->index;
  if (acks) Send(ResultAck{index, round, ballot, {ranges.begin(), ranges.end()}});
  if (stages) TryStage(*ByIndex(index));
}

void TestWorker::TryStage(LaneView& view) {
  if (!view.prepared.has_value()) return;
  const Prepared prepared = *view.prepared;
  Digest digest = 0;
  if (prepared.value.outcome == Outcome::kCommitted) {
    if (view.result_round != prepared.round) view.results.clear();
    for (TensorIndex tensor = 0; tensor < prepared.value.layout_version; ++tensor) {
      if (!HasResult(prepared.value, tensor)) continue;
      if (tensor >= view.tensors.size()) return;
      for (uint32_t i = 0; i < ChunksIn(view.tensors[tensor]); ++i) {
        const auto it = view.results.find({tensor, i});
        if (it == view.results.end()) return;
        digest += DigestOf({tensor, i}, it->second.sum);
      }
    }
    if (!view.results.empty() && !(view.result_ballot == prepared.value_ballot)) return;
    EXPECT_EQ(digest, prepared.value.digest) << id << ", round " << prepared.round;
  }
  for (const auto& [name, candidate] : lanes) {
    if (&candidate == &view) return Stage(name);
  }
}

void TestWorker::OnVerdict(LaneView& view, const VerdictRecord& record) {
  if (record.round <= view.last) return;
  EXPECT_EQ(record.round, view.next()) << id << " missed a verdict";
  EXPECT_EQ(record.chain, ExtendChain(view.chain, record.round, record.value))
      << id << ", round " << record.round;
  // The call may have gone on without it; see Presence::kLeftOut.
  const bool without = view.kind == LaneKind::kCall && !IsCounted(record.value, id, incarnation);
  EXPECT_TRUE(without || (view.staged.has_value() && view.staged->round == record.round))
      << id << " was told a verdict of round " << record.round << ", which it has not staged";
  if (view.staged.has_value()) {
    EXPECT_EQ(view.staged->value_ballot, record.value_ballot);
    EXPECT_TRUE(view.staged->value == record.value);
  }
  view.last = record.round;
  view.let_go = false;
  view.chain = record.chain;
  view.verdicts.push_back(record);
  view.delivered[record.round] =
      record.value.outcome == Outcome::kCommitted ? view.results : Results{};
  view.begun.reset();
  view.skipped.reset();
  view.committed.reset();
  view.pushed.clear();
  view.prepared.reset();
  view.staged.reset();
  membership = record.next;
}

// Sends one frame for each run of chunks, at most frame_bytes long, as a client does.
void TestWorker::PushRanges(LaneView& view, RoundNumber round,
                            const std::vector<ChunkRange>& ranges) {
  const LaneIndex index = view.index;
  const auto most = static_cast<uint32_t>(cluster_->config.frame_bytes / kChunkBytes);
  for (const ChunkRange& range : ranges) {
    for (uint32_t first = range.first; first < range.first + range.count;) {
      const LaneView* now = ByIndex(index);
      if (now == nullptr || now->next() != round || now->pushed.count({range.tensor, first}) == 0) {
        ++first;
        continue;
      }
      uint32_t count = 1;
      while (count < most && first + count < range.first + range.count &&
             now->pushed.count({range.tensor, first + count}) > 0) {
        ++count;
      }
      for (const auto& [name, candidate] : lanes) {
        if (candidate.index == index) SendFrame(round, {range.tensor, first, count}, name);
      }
      first += count;
    }
  }
}

void TestWorker::Take(const ToWorker& message) {
  inbox.push_back(message);
  if (const auto* told = std::get_if<Welcome>(&message)) {
    const bool same = told->incarnation == incarnation;
    if (!same) {
      from_start = told->membership.generation.term == 0;
      lanes.clear();
      membership = Membership{};
    }
    welcome = *told;
    placements.clear();
    for (const Placement& placement : told->placements) placements[placement.number] = placement;
    incarnation = told->incarnation;
    role = told->role;
    if (role == Role::kMember) membership = told->membership;
    // What it has let go is gone unless this aggregator has it.
    for (auto it = lanes.begin(); it != lanes.end();) {
      const bool here = std::any_of(told->layouts.begin(), told->layouts.end(),
                                    [&view = it->second](const LaneLayout& each) {
                                      return each.lane == view.index && each.round == view.next();
                                    });
      it = it->second.let_go && !here ? lanes.erase(it) : std::next(it);
    }
    for (const LaneLayout& layout : told->layouts) {
      LaneView& view = lanes[layout.name];
      view.index = layout.lane;
      view.kind = layout.kind;
      view.tensors = layout.tensors;
      view.window = layout.window;
      view.placement = layout.placement;
      if (!sees_layouts) continue;
      Send(LayoutSeen{layout.lane, static_cast<uint32_t>(layout.tensors.size())});
      Register({}, layout.name, layout.kind);  // It has the same model as the others.
    }
    for (const LastVerdicts& missed : told->verdicts) {
      for (const VerdictRecord& record : missed.verdicts) {
        OnVerdict(*ByIndex(missed.lane), record);
      }
    }
    for (const OpenRound& open : told->open) {
      LaneView& view = *ByIndex(open.lane);
      if (!repushes || !view.begun.has_value() || view.next() != open.round) continue;
      std::set<Chunk> have;
      for (const ChunkRange& range : open.have) {
        for (const Chunk& chunk : ChunksOf(range)) have.insert(chunk);
      }
      const LaneIndex index = view.index;
      Send(*view.begun);
      if (ByIndex(index)->skipped.has_value()) Send(*ByIndex(index)->skipped);
      if (open.phase != RoundPhase::kPrepared) {
        std::vector<ChunkRange> missing;
        for (const Chunk& chunk : ByIndex(index)->pushed) {
          if (have.count(chunk) == 0) missing.push_back({chunk.first, chunk.second, 1});
        }
        PushRanges(*ByIndex(index), open.round, missing);
      }
      if (ByIndex(index)->committed.has_value()) Send(*ByIndex(index)->committed);
    }
    // Begins a round again that this aggregator does not know yet.
    for (auto& [name, view] : lanes) {
      const bool open = std::any_of(
          told->open.begin(), told->open.end(),
          [&, index = view.index](const OpenRound& round) { return round.lane == index; });
      if (!repushes || open || !view.begun.has_value() || role != Role::kMember) continue;
      Send(*view.begun);
      if (view.skipped.has_value()) Send(*view.skipped);
      std::vector<ChunkRange> all;
      for (const Chunk& chunk : view.pushed) all.push_back({chunk.first, chunk.second, 1});
      PushRanges(view, view.next(), all);
      if (view.committed.has_value()) Send(*view.committed);
    }
  } else if (const auto* changed = std::get_if<MembershipChanged>(&message)) {
    membership = changed->membership;
    role = changed->role;
    donor = changed->donor;
    if (!changed->start.empty()) lacks_state = donor.has_value() && *donor != id;
    for (const StartRound& start : changed->start) {
      LaneView& view = lanes[start.lane];
      view.index = start.index;
      view.last = start.round - 1;
      view.chain = start.chain;
      view.placement = start.placement;
    }
  } else if (const auto* layout = std::get_if<LaneLayout>(&message)) {
    LaneView& view = lanes[layout->name];
    view.index = layout->lane;
    view.kind = layout->kind;
    view.window = layout->window;
    view.placement = layout->placement;
    if (layout->first > view.tensors.size()) {
      ADD_FAILURE() << id << " was sent a layout with a gap";
      return;
    }
    view.tensors.resize(layout->first);
    view.tensors.insert(view.tensors.end(), layout->tensors.begin(), layout->tensors.end());
    // A client ignores a lane that its trainer has not named.
    if (!sees_layouts || named.count(layout->name) == 0) return;
    Send(LayoutSeen{layout->lane, static_cast<uint32_t>(view.tensors.size())});
  } else if (const auto* credit = std::get_if<Credit>(&message)) {
    LaneView* view = ByIndex(credit->lane);
    const bool placed = view != nullptr && view->placement.number != 0;
    if (placed && repushes && view->next() == credit->round) {
      return PushRanges(*view, credit->round, credit->refused);
    }
    if (!obeys_windows || view == nullptr || view->next() != credit->round) return;
    for (const ChunkRange& range : credit->refused) {
      for (const Chunk& chunk : ChunksOf(range)) view->refused.insert(chunk);
    }
    if (view->refused.empty() || credit->window < kChunkBytes) return;
    const Chunk chunk = *view->refused.begin();
    view->refused.erase(chunk);
    PushRanges(*view, credit->round, {{chunk.first, chunk.second, 1}});
  } else if (const auto* restarted = std::get_if<AttemptRestarted>(&message)) {
    LaneView* view = ByIndex(restarted->lane);
    view->prepared.reset();
    if (repushes) PushRanges(*view, restarted->round, restarted->redo);
  } else if (const auto* pull = std::get_if<Pull>(&message)) {
    if (repushes) PushRanges(*ByIndex(pull->lane), pull->round, pull->wanted);
  } else if (const auto* prepared = std::get_if<Prepared>(&message)) {
    LaneView* view = ByIndex(prepared->lane);
    view->prepared = *prepared;
    if (stages) TryStage(*view);
  } else if (const auto* supply = std::get_if<Supply>(&message)) {
    if (!supplies) return;
    LaneView* view = ByIndex(supply->lane);
    for (const ChunkRange& whole : supply->ranges) {
      for (const auto& [shard, range] : PartsOf(*view, whole)) {
        FrameReceived frame;
        frame.session = session;
        frame.shard = shard;
        frame.kind = FrameKind::kSupply;
        frame.lane = supply->lane;
        frame.round = supply->round;
        frame.ballot = supply->ballot;
        frame.ranges = {range};
        world::Chunks<Reduced> chunks;
        for (const Chunk& chunk : ChunksOf(range)) {
          chunks.push_back(view->results.at(chunk));
          frame.digests.push_back(DigestOf(chunk, chunks.back().sum));
          frame.bytes += ChunkSize(*TensorBytes(view->tensors[chunk.first]), chunk.second);
        }
        cluster_->Step(std::move(frame), std::move(chunks));
      }
    }
  } else if (const auto* verdict = std::get_if<Verdict>(&message)) {
    OnVerdict(*ByIndex(verdict->lane), verdict->record);
    ByIndex(verdict->lane)->placement = verdict->placement;
  } else if (const auto* placement = std::get_if<Placement>(&message)) {
    EXPECT_NE(features & kFeaturePlacement, 0u) << id << " does not know placements";
    placements[placement->number] = *placement;
  } else if (const auto* asked = std::get_if<LetGo>(&message)) {
    LaneView* view = ByIndex(asked->lane);
    if (!lets_go || view == nullptr || view->begun.has_value() || view->last != asked->round)
      return;
    view->let_go = true;
    Send(*asked);
  } else if (const auto* gone = std::get_if<LaneGone>(&message)) {
    for (auto it = lanes.begin(); it != lanes.end(); ++it) {
      if (it->second.index != gone->lane) continue;
      lanes.erase(it);
      return;
    }
  }
}

// ---- Cluster

Cluster::Cluster(JobSettings job_settings, Config core_config)
    : settings(job_settings), config(std::move(core_config)) {
  core = std::make_unique<Coordinator>(config, now);
}

TestWorker& Cluster::Worker(const WorkerId& id) {
  auto& worker = workers_[id];
  if (worker == nullptr) {
    worker = std::make_unique<TestWorker>(this, id, uint64_t{1} << ((workers_.size() - 1) % 64));
  }
  return *worker;
}

TestWorker& Cluster::Join(const WorkerId& id) {
  TestWorker& worker = Worker(id);
  worker.Connect();
  worker.Register({Tensor("w"), Tensor("b")});
  worker.Ready();
  return worker;
}

void Cluster::Step(Taken taken, world::Chunks<Reduced> chunks) {
  queue_.emplace_back(std::move(taken), std::move(chunks));
  if (stepping_) return;
  stepping_ = true;
  while (!queue_.empty()) {
    auto [next, data] = std::move(queue_.front());
    queue_.pop_front();
    StepOne(next, std::move(data));
  }
  stepping_ = false;
  CheckInvariants();
}

void Cluster::StepOne(const Taken& taken, world::Chunks<Reduced> chunks) {
  const auto* input = std::get_if<Input>(&taken);
  std::optional<Shell::Push> push;
  if (const auto* frame = std::get_if<FrameReceived>(input); frame != nullptr && !chunks.empty()) {
    push = Shell::Push{frame->kind,   frame->lane,  frame->round,      frame->ballot,
                       frame->ranges, frame->bytes, std::move(chunks), {}};
    // The sender knows the sizes of its chunks.
    const TestWorker* sender = BySession(frame->session);
    if (sender != nullptr && frame->ranges.size() > 1) {
      push->sizes = sender->SizesOf(frame->lane, frame->ranges);
    }
  }
  std::optional<world::BlobFrame> value;
  if (const auto* received = std::get_if<BlobReceived>(input)) {
    value = world::BlobFrame{received->key, received->first, received->count, 0, received->bytes};
  }
  std::vector<Action> actions;
  std::visit([&](const auto& what) { core->Step(what, now, actions); }, taken);
  for (const Action& action : actions) {
    log.push_back(action);
    Do(action, {push.has_value() ? &*push : nullptr, value.has_value() ? &*value : nullptr});
  }
  for (const Action& action : actions) {
    if (const auto* release = std::get_if<ReleaseShard>(&action)) Release(release->shard);
  }
}

void Cluster::Sleep(absl::Duration duration) {
  const absl::Time end = now + duration;
  absl::Time beat = now + config.heartbeat;
  while (now < end) {
    absl::Time next = std::min(end, beat);
    if (core->NextDeadline() < next) next = std::max(now, core->NextDeadline());
    now = next;
    if (now >= beat) {
      for (auto& [id, worker] : workers_) {
        if (worker->heartbeats) worker->Send(Heartbeat{0, worker->waits});
      }
      beat += config.heartbeat;
    }
    if (core->NextDeadline() <= now) {
      Step(Tick{});
      // If a tick did not clear a deadline, the owner of the core would spin.
      ASSERT_GT(core->NextDeadline(), now) << "a deadline is not cleared when it is checked";
    }
  }
}

void Cluster::Crash(Term term, absl::Duration down) {
  for (auto& [id, worker] : workers_) worker->session = 0;
  shells_.clear();
  shells_[kCoordinatorShard];
  reduces_asked.clear();
  reductions.clear();
  now += down;
  config.term = term;
  core = std::make_unique<Coordinator>(config, now);
}

const Round* Cluster::round(LaneIndex lane) const {
  const Lanes& lanes = job().lanes;
  return lanes.Has(lane) && lanes[lane].round.has_value() ? &*lanes[lane].round : nullptr;
}

size_t Cluster::Notes(NoteKind kind) const {
  return static_cast<size_t>(std::count_if(notes.begin(), notes.end(),
                                           [&](const Note& note) { return note.kind == kind; }));
}

Note Cluster::LastNote(NoteKind kind) const {
  for (auto it = notes.rbegin(); it != notes.rend(); ++it) {
    if (it->kind == kind) return *it;
  }
  return {};
}

void Cluster::ClearLog() {
  log.clear();
  notes.clear();
  for (auto& [id, worker] : workers_) worker->inbox.clear();
}

TestWorker* Cluster::BySession(SessionId session) {
  for (auto& [id, worker] : workers_) {
    if (worker->session == session) return worker.get();
  }
  return nullptr;
}

// This shell runs the coordinator alone, on sessions; Delivery has its own test.
void Cluster::Do(const Action& action, const Shell::Arrived& arrived) {
  std::visit(Overloaded{
                 [&](const Note& note) { notes.push_back(note); },
                 [&](const Drained&) { drained = true; },
                 [&](const Send& send) { Do(send); },
                 [&](const SendAll& send) {
                   EXPECT_FALSE(send.sessions.empty());
                   for (const SessionId session : send.sessions) Do(Send{session, send.message});
                 },
                 [&](const EndSession& end) {
                   if (TestWorker* worker = BySession(end.session)) worker->OnEnded(end.error);
                 },
                 [&](const Publish& publish) {
                   const auto shell = shells_.find(publish.shard);
                   if (shell == shells_.end()) return;
                   SendResults(publish.sessions, shell->second.FrameOf(publish, publish.ranges));
                 },
                 [&](const RelayResult& relay) {
                   SendResults(relay.sessions, Shell::Relayed(relay, arrived));
                 },
                 [&](const RelayBlob& relay) {
                   EXPECT_FALSE(relay.sessions.empty());
                   CarryOut(relay, arrived);
                 },
                 [&](const SendBlob& send) {
                   EXPECT_GT(send.count, 0u);
                   EXPECT_LE(send.count * kChunkBytes, config.frame_bytes);
                   CarryOut(send, arrived);
                 },
                 [&](const SaveState& save) { Do(save); },
                 [&](const SaveSettings& save) { Do(save); },
                 [](const ResultsTaken&) {},
                 [](const ReleaseShard&) {},
                 [](const AcceptStream&) {},
                 [](const CloseStream&) {},
                 [&](const auto& held) { CarryOut(held, arrived); },
             },
             action);
}

template <typename A>
void Cluster::CarryOut(const A& action, const Shell::Arrived& arrived) {
  ShardId only = kCoordinatorShard;
  if constexpr (std::is_same_v<A, StartAttempt> || std::is_same_v<A, EndRound> ||
                std::is_same_v<A, EndJob> || std::is_same_v<A, IdleLane>) {
    only = kEveryShard;
  } else if constexpr (!std::is_same_v<A, RelayBlob> && !std::is_same_v<A, SendBlob> &&
                       !std::is_same_v<A, DropBlob>) {
    only = action.shard;
  }
  for (auto& [shard, shell] : shells_) {
    if (only != kEveryShard && only != shard) continue;
    const absl::Status status = shell.CarryOut(action, arrived, *this);
    EXPECT_TRUE(status.ok()) << "on shard " << shard << ": " << status;
  }
}

void Cluster::Finish(const Shell::Reduction& reduction) {
  const auto shell = shells_.find(reduction.what.shard);
  if (shell == shells_.end()) return;
  ReduceDone done = shell->second.Finish(reduction);
  done.shard = shell->first;
  Step(std::move(done));
}

ShardId Cluster::AddShard(const std::string& name, uint64_t memory) {
  const ShardId shard = ++last_shard_;
  shells_[shard];
  Step(ShardUp{shard, name, name + ":29600", memory});
  return shard;
}

void Cluster::DrainShard(ShardId shard) { Step(ShardDraining{shard}); }

void Cluster::Release(ShardId shard) {
  EXPECT_EQ(kept_chunks(shard) + held_results(shard), 0u);
  LoseShard(shard);
}

void Cluster::LoseShard(ShardId shard) {
  shells_.erase(shard);
  Step(ShardLost{shard, "its connection was lost."});
}

void Cluster::Do(const Send& send) {
  if (TestWorker* worker = BySession(send.session)) worker->Take(send.message);
}

void Cluster::Started(Shell::Reduction reduction) {
  if (reduces) return Finish(reduction);
  reduces_asked.push_back(reduction.what);
  reductions.push_back(std::move(reduction));
}

void Cluster::FinishReduces() {
  reduces_asked.clear();
  for (const Shell::Reduction& one : std::exchange(reductions, {})) Finish(one);
}

void Cluster::SendResults(const std::vector<SessionId>& sessions,
                          const absl::StatusOr<Shell::Frame>& frame) {
  ASSERT_TRUE(frame.ok()) << frame.status();
  for (const SessionId session : sessions) {
    TestWorker* worker = BySession(session);
    if (worker != nullptr) worker->TakeResults(std::get<Shell::Result>(*frame));
  }
}

void Cluster::Do(const SaveState& save) {
  saves_asked.push_back(save);
  if (saves) FinishSaves();
}

void Cluster::Do(const SaveSettings& save) {
  settings_saves_asked.push_back(save);
  if (saves) FinishSettingsSaves();
}

void Cluster::FinishSettingsSaves() {
  const std::vector<SaveSettings> asked = std::exchange(settings_saves_asked, {});
  for (const SaveSettings& save : asked) {
    if (save_ok) {
      SavedState& saved = config.saved[save.name];
      saved.run = save.run;
      saved.term = save.term;
      saved.settings = save.settings;
    }
    Step(SettingsSaved{save.job, save_ok});
  }
}

void Cluster::FinishSaves() {
  const std::vector<SaveState> asked = std::exchange(saves_asked, {});
  for (const SaveState& save : asked) {
    if (save_ok) {
      config.saved[save.name] = SavedState{save.run, save.term, save.membership, save.settings};
    }
    Step(StateSaved{save.job, save.membership.generation, save_ok});
  }
}

void Cluster::CheckInvariants() {
  EXPECT_LE(core->reserved_bytes(), config.memory_bytes);
  uint64_t reserved = 0;
  for (const auto& [id, one] : core->jobs()) reserved += one.reserved_bytes();
  EXPECT_EQ(core->reserved_bytes(), reserved) << "every reserved byte belongs to a job";
  // A state machine may only receive inputs that its table has.
  for (const auto& [id, current] : core->jobs()) {
    RowsTaken taken = current.taken();
    taken.Add(current.workers.taken());
    taken.Add(current.pause.taken());
    for (const Lane& lane : current.lanes) {
      if (!lane.round.has_value()) continue;
      taken.Add(lane.round->taken());
      for (const RoundMember& member : lane.round->members()) {
        taken.Add(member.contribution.taken());
        taken.Add(member.presence.taken());
        taken.Add(member.staging.taken());
      }
    }
    EXPECT_FALSE(taken.refused());
  }
  for (const auto& [id, current] : core->jobs()) {
    for (const Lane& lane : current.lanes) {
      EXPECT_LE(lane.ledger.held_bytes(), lane.ledger_bytes) << "of samples in lane " << lane.name;
      if (!lane.round.has_value()) continue;
      EXPECT_LE(lane.round->held.bytes(), lane.memory.result_window);
      for (const RoundMember& member : lane.round->members()) {
        for (const auto& [shard, bytes] : member.contribution.parked()) {
          EXPECT_LE(bytes, lane.memory.window) << member.id << " at shard " << shard;
        }
      }
    }
  }
}

}  // namespace basin::aggregator

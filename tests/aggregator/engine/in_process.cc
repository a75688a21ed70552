// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/engine/in_process.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/plan.h"
#include "kernels/reference.h"
#include "tests/runtime/limit.h"

namespace basin::aggregator {
namespace {

// The contribution of worker `worker` at `index`: values whose sum depends on the order.
float Gradient(uint32_t worker, size_t index) {
  return std::ldexp(1.0F + static_cast<float>((index * 2654435761U + worker * 40503U) % 8191),
                    static_cast<int>(worker * 7) - 12);
}

}  // namespace

StringPayload::StringPayload(std::string bytes, size_t piece_bytes) : bytes_(std::move(bytes)) {
  for (size_t at = 0; at < bytes_.size(); at += piece_bytes) {
    pieces_.push_back(std::string_view(bytes_).substr(at, piece_bytes));
  }
}

// ---- transport

void QueueTransport::Send(absl::Span<const SessionId> sessions, const ToWorker& message) {
  MutexLock lock(mutex_);
  for (const SessionId session : sessions) {
    connections_[session].messages.push_back(message);
    connections_[session].sender = std::this_thread::get_id();
  }
  changed_.NotifyAll();
}

void QueueTransport::CloseSession(SessionId session) {
  MutexLock lock(mutex_);
  connections_[session].closed = true;
  changed_.NotifyAll();
}

void QueueTransport::AcceptStream(StreamId stream, SessionId, const JobName&) {
  MutexLock lock(mutex_);
  connections_[stream].accepted = true;
  changed_.NotifyAll();
}

void QueueTransport::Send(absl::Span<const StreamId> streams, const OutgoingFrame& frame) {
  MutexLock lock(mutex_);
  for (const StreamId stream : streams) connections_[stream].frames.push_back(frame);
  changed_.NotifyAll();
}

void QueueTransport::CloseStream(StreamId stream, const absl::Status& why) {
  MutexLock lock(mutex_);
  Connection& connection = connections_[stream];
  connection.closed = true;
  connection.why = why;
  connection.frames.clear();
  changed_.NotifyAll();
}

void QueueTransport::Consumed(uint64_t connection, uint64_t bytes) {
  MutexLock lock(mutex_);
  connections_[connection].consumed += bytes;
  changed_.NotifyAll();
}

bool QueueTransport::Await(uint64_t connection, const std::function<bool(Connection&)>& ready) {
  return AwaitAny({connection}, ready) != 0;
}

uint64_t QueueTransport::AwaitAny(const std::vector<uint64_t>& connections,
                                  const std::function<bool(Connection&)>& ready) {
  const auto give_up = InAMinute();
  MutexLock lock(mutex_);
  while (true) {
    for (const uint64_t connection : connections) {
      if (ready(connections_[connection])) return connection;
    }
    if (std::chrono::steady_clock::now() >= give_up) return 0;
    changed_.WaitUntil(mutex_, give_up);
  }
}

void NoteBook::OnNote(const Note& note, absl::Time) {
  MutexLock lock(mutex_);
  notes_.push_back(note);
}

std::vector<Note> NoteBook::OfKind(NoteKind kind) const {
  MutexLock lock(mutex_);
  std::vector<Note> found;
  for (const Note& note : notes_) {
    if (note.kind == kind) found.push_back(note);
  }
  return found;
}

std::vector<Note> NoteBook::All() const {
  MutexLock lock(mutex_);
  return notes_;
}

// ---- worker

RigWorker::RigWorker(Network& network, WorkerId the_id, const Model& model)
    : id(std::move(the_id)), results(model.tensors.size()), network_(network), model_(model) {}

void RigWorker::Send(ToAggregator message) { network_.OnMessage(session, std::move(message)); }

Hello RigWorker::HelloOf() const {
  Hello hello;
  hello.job = job;
  hello.run = "run";
  hello.worker = id;
  hello.nonce = std::hash<std::string>()(id) | 1;
  hello.fresh = true;
  hello.settings = model_.settings;
  hello.features = features;
  return hello;
}

void RigWorker::Connect() {
  session = network_.OpenSession();
  Send(HelloOf());
  welcome = Await<Welcome>();
  while (streams.size() < streams_wanted) OpenStream();
  Send(Register{kLane, LaneKind::kGradient, model_.tensors});
  const LaneLayout layout = Await<LaneLayout>();
  lane = layout.lane;
  Send(LayoutSeen{lane, layout.first + static_cast<uint32_t>(layout.tensors.size())});
}

uint64_t RigWorker::OpenStream() {
  const StreamId stream = network_.OpenStream(welcome->token);
  EXPECT_TRUE(network_.transport.Await(
      stream, [](QueueTransport::Connection& connection) { return connection.accepted; }));
  streams.push_back(stream);
  return stream;
}

void RigWorker::Ready() { Send(basin::Ready{}); }

void RigWorker::Begin(Counts counts) {
  digest_ = 0;
  chunks_ = bytes_ = 0;
  present_ = Bitmap(model_.tensors.size());
  prepared_.reset();
  held_.clear();
  pushed_.clear();
  result_ballot_ = Ballot{};
  for (size_t i = 0; i < model_.tensors.size(); ++i) {
    results[i].assign(*TensorBytes(model_.tensors[i]), '\0');
  }
  basin::Begin begin;
  begin.lane = lane;
  begin.round = round;
  begin.spec = model_.spec;
  begin.counts = counts;
  Send(begin);
}

void RigWorker::PushFrame(StreamId stream, TensorIndex tensor, uint32_t first, uint32_t count,
                          const std::string& bytes, bool break_digest) {
  const uint64_t chunk_bytes = WireChunkBytes(wire_dtype);
  IncomingFrame frame;
  frame.header = ContributionHeader{lane, round, {tensor, first, count}};
  frame.encoding = {wire_dtype, wire_exponent};
  std::string part = bytes.substr(first * chunk_bytes, count * chunk_bytes);
  frame.payload_bytes = part.size();
  frame.payload = std::make_shared<StringPayload>(std::move(part), piece_bytes);
  frame.contents = HashChunks(frame.payload->pieces(), chunk_bytes);
  const kernels::TensorKey key(model_.tensors[tensor].name);
  for (uint32_t i = 0; i < count; ++i) {
    const Digest digest = kernels::TermOf(key, first + i, frame.contents[i]).low;
    frame.claimed.push_back(break_digest ? digest + 1 : digest);
  }
  network_.OnFrame(stream, std::move(frame));
}

void RigWorker::Push(TensorIndex tensor, const std::string& bytes, uint32_t chunks,
                     bool backwards) {
  pushed_[tensor] = bytes;
  const uint64_t chunk_bytes = WireChunkBytes(wire_dtype);
  const uint32_t total = static_cast<uint32_t>((bytes.size() + chunk_bytes - 1) / chunk_bytes);
  std::vector<uint32_t> firsts;
  for (uint32_t first = 0; first < total; first += chunks) firsts.push_back(first);
  if (backwards) std::reverse(firsts.begin(), firsts.end());
  size_t turn = 0;
  for (const uint32_t first : firsts) {
    PushFrame(streams[turn++ % streams.size()], tensor, first, std::min(chunks, total - first),
              bytes);
  }
  const kernels::TensorKey key(model_.tensors[tensor].name);
  for (uint32_t chunk = 0; chunk < total; ++chunk) {
    kernels::ContentDigest content;
    const std::string part = bytes.substr(chunk * chunk_bytes, chunk_bytes);
    content.Update(part.data(), part.size());
    digest_ += kernels::TermOf(key, chunk, content.Finish()).low;
  }
  chunks_ += total;
  bytes_ += *TensorBytes(model_.tensors[tensor]);
  present_.Set(tensor);
}

void RigWorker::Commit() {
  basin::Commit commit;
  commit.lane = lane;
  commit.round = round;
  commit.layout_version = static_cast<uint32_t>(model_.tensors.size());
  commit.present = present_;
  commit.chunks = chunks_;
  commit.bytes = bytes_;
  commit.digest = digest_;
  Send(commit);
}

void RigWorker::OnMessage(const ToWorker& message) {
  if (const auto* prepared = std::get_if<Prepared>(&message)) {
    prepared_ = *prepared;
  } else if (const auto* restarted = std::get_if<AttemptRestarted>(&message)) {
    // Results of the new attempt may have come before this.
    if (result_ballot_ < restarted->ballot) held_.clear();
    result_ballot_ = std::max(result_ballot_, restarted->ballot);
    prepared_.reset();
    for (const ChunkRange& range : restarted->redo) {
      for (uint32_t i = 0; i < range.count; ++i) {
        PushFrame(streams[0], range.tensor, range.first + i, 1, pushed_.at(range.tensor));
      }
    }
  }
}

bool RigWorker::TakeResults() {
  bool any = false;
  for (const StreamId stream : streams) {
    std::deque<OutgoingFrame> frames;
    network_.transport.Await(stream, [&](QueueTransport::Connection& connection) {
      frames.swap(connection.frames);
      return true;
    });
    for (const OutgoingFrame& outgoing : frames) {
      any = true;
      const auto* frame = std::get_if<ResultHeader>(&outgoing.header);
      if (frame == nullptr || frame->round != round) continue;
      ++result_frames;
      if (frame->ballot < result_ballot_) continue;
      if (result_ballot_ < frame->ballot) held_.clear();
      result_ballot_ = frame->ballot;
      std::string bytes(outgoing.payload.bytes(), '\0');
      char* to = bytes.data();
      for (const PayloadPart& part : outgoing.payload.parts()) to = CopyBytes(part, to);
      ResultAck ack{lane, round, frame->ballot, {}};
      size_t index = 0;
      uint64_t begin = 0;
      for (const ChunkRun& run : frame->runs) {
        const uint64_t size = frame->runs.size() == 1 ? bytes.size() : run.bytes;
        results[run.range.tensor].replace(run.range.first * kChunkBytes, size, bytes, begin, size);
        begin += size;
        for (uint32_t i = 0; i < run.range.count; ++i) {
          held_[{run.range.tensor, run.range.first + i}] = outgoing.digests[index++];
        }
        ack.ranges.push_back(run.range);
      }
      Send(std::move(ack));
    }
  }
  return any;
}

// Whether every chunk of the prepared value is here. Compares the digests with the bytes.
bool RigWorker::Complete() const {
  if (!prepared_.has_value()) return false;
  if (prepared_->value.outcome != Outcome::kCommitted) return true;
  Digest sum = 0;
  for (TensorIndex tensor = 0; tensor < model_.tensors.size(); ++tensor) {
    if (!HasResult(prepared_->value, tensor)) continue;
    const kernels::TensorKey key(model_.tensors[tensor].name);
    const std::string& bytes = results[tensor];
    for (uint32_t chunk = 0; chunk < ChunkCount(bytes.size()); ++chunk) {
      const auto held = held_.find({tensor, chunk});
      if (held == held_.end()) return false;
      kernels::ContentDigest content;
      content.Update(bytes.data() + chunk * kChunkBytes, ChunkSize(bytes.size(), chunk));
      EXPECT_EQ(kernels::TermOf(key, chunk, content.Finish()).low, held->second);
      sum += held->second;
    }
  }
  EXPECT_EQ(sum, prepared_->value.digest);
  return true;
}

void RigWorker::Stage() {
  std::vector<uint64_t> connections = streams;
  connections.push_back(session);
  while (true) {
    while (TakeResults()) {
    }
    if (Complete()) break;
    std::optional<ToWorker> next;
    const uint64_t found =
        network_.transport.AwaitAny(connections, [&](QueueTransport::Connection& connection) {
          if (!connection.frames.empty()) return true;
          if (connection.messages.empty()) return false;
          next = std::move(connection.messages.front());
          connection.messages.pop_front();
          return true;
        });
    if (found == 0) {
      ADD_FAILURE() << id << " waits for the results of round " << round;
      return;
    }
    if (next.has_value()) OnMessage(*next);
  }
  Send(Staged{lane, round, prepared_->ballot});
}

VerdictRecord RigWorker::Verdict() {
  const basin::Verdict verdict = Await<basin::Verdict>();
  EXPECT_EQ(verdict.record.round, round);
  ++round;
  return verdict.record;
}

void Join(const std::vector<RigWorker*>& workers) {
  for (RigWorker* worker : workers) worker->Connect();
  for (RigWorker* worker : workers) worker->Ready();
  // Connections have no order among each other: a worker may not be a member before it receives the
  // membership.
  for (RigWorker* worker : workers) {
    while (worker->Await<MembershipChanged>().membership.members.size() < workers.size()) {
    }
  }
}

std::vector<VerdictRecord> Finish(const std::vector<RigWorker*>& workers) {
  for (RigWorker* worker : workers) worker->Stage();
  std::vector<VerdictRecord> told;
  for (RigWorker* worker : workers) told.push_back(worker->Verdict());
  return told;
}

void RigWorker::Die() {
  for (const StreamId stream : streams) network_.CloseStream(stream);
  streams.clear();
  network_.CloseSession(session);
}

void RigWorker::LoseSession() { network_.CloseSession(session); }

// ---- rig

Rig::Rig(EngineOptions options, StateFile* state_file, accelerator::ReduceDevices* devices)
    : EngineNetwork(engine),
      engine(std::move(options), clock, *reducer, notes, state_file, devices) {
  engine.Start(transport);
}

Rig::~Rig() { engine.Stop(); }

void Rig::Pass(absl::Duration time) {
  clock.Advance(time);
  // The first look is answered before deadlines are judged, the second one after.
  for (int i = 0; i < 2; ++i) Look<int>([](const Runner&) { return 0; });
}

std::string Floats(size_t count, const std::function<float(size_t)>& value) {
  std::string bytes(count * sizeof(float), '\0');
  for (size_t i = 0; i < count; ++i) {
    const float element = value(i);
    std::memcpy(bytes.data() + i * sizeof(float), &element, sizeof(float));
  }
  return bytes;
}

float FloatAt(const std::string& bytes, size_t index) {
  float value;
  std::memcpy(&value, bytes.data() + index * sizeof(float), sizeof(float));
  return value;
}

TensorSpec F32(const std::string& name, uint64_t elements) {
  return {name, DType::kF32, {elements}};
}

Model AverageOf(std::vector<TensorSpec> tensors, uint32_t workers) {
  Model model;
  model.tensors = std::move(tensors);
  model.settings = {1, workers, workers};
  model.spec.op = ReduceOp::kAverage;
  return model;
}

std::string GradientOf(uint32_t worker, size_t elements) {
  return Floats(elements, [worker](size_t i) { return Gradient(worker, i); });
}

std::string ReferenceAverage(const std::vector<std::string>& contributions) {
  kernels::ReductionSpec spec;
  spec.op = ReduceOp::kAverage;
  spec.tensor_dtype = spec.result_dtype = DType::kF32;
  spec.divisor = contributions.size();
  std::vector<kernels::Slice> slices;
  std::vector<kernels::Input> inputs;
  slices.reserve(contributions.size());
  for (const std::string& bytes : contributions) {
    spec.contributions.push_back({DType::kF32, 0, 1, kernels::ContributionKind::kMean, false});
    slices.push_back({bytes.data(), bytes.size()});
    inputs.push_back({&slices.back(), 1});
  }
  const auto plan = kernels::ReductionPlan::Make(spec);
  std::string result(contributions[0].size(), '\0');
  kernels::Facts facts;
  const auto oracle = kernels::MakeReferenceReducer();
  const auto failure =
      oracle->Reduce(plan.value(), inputs.data(), {0, contributions[0].size() / sizeof(float)},
                     {result.data()}, &facts);
  EXPECT_FALSE(failure.has_value());
  return result;
}

}  // namespace basin::aggregator

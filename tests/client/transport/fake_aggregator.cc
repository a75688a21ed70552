// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/client/transport/fake_aggregator.h"

#include <algorithm>
#include <chrono>

#include "kernels/checksum.h"
#include "proto/wire/status_detail.h"
#include "tests/runtime/limit.h"

namespace basin::client {

// ---- the worker's end of a connection

class FakeSession : public SessionChannel {
 public:
  using State = FakeAggregator::State;
  FakeSession(std::shared_ptr<State> state, uint64_t connection)
      : state_(std::move(state)), connection_(connection) {}
  ~FakeSession() override { FakeSession::Close(); }
  void Send(std::string message) override {
    MutexLock lock(state_->mutex);
    state_->sessions[connection_].messages.push_back(std::move(message));
    state_->changed.NotifyAll();
  }
  void Consumed(uint64_t bytes) override {
    MutexLock lock(state_->mutex);
    state_->unconsumed -= bytes;
    state_->changed.NotifyAll();
  }
  void Close() override {
    MutexLock lock(state_->mutex);
    state_->sessions[connection_].closed = true;
    state_->changed.NotifyAll();
  }

 private:
  const std::shared_ptr<State> state_;
  const uint64_t connection_;
};

class FakeStream : public StreamChannel {
 public:
  using State = FakeAggregator::State;
  FakeStream(std::shared_ptr<State> state, uint32_t stream, uint64_t connection)
      : state_(std::move(state)), stream_(stream), connection_(connection) {}
  ~FakeStream() override { FakeStream::Close(); }
  absl::Status Send(OutgoingFrame frame) override {
    MutexLock lock(state_->mutex);
    const uint64_t sequence = ++state_->streams[connection_].received;
    state_->frames.push_back({stream_, connection_, sequence, std::move(frame)});
    state_->changed.NotifyAll();
    return absl::OkStatus();
  }
  uint64_t queued_bytes() const override {
    MutexLock lock(state_->mutex);
    uint64_t bytes = 0;
    for (const State::Queued& queued : state_->frames) {
      if (queued.connection == connection_) bytes += queued.frame.payload.bytes();
    }
    return bytes;
  }
  void Consumed(uint64_t bytes) override {
    MutexLock lock(state_->mutex);
    state_->unconsumed -= bytes;
    state_->changed.NotifyAll();
  }
  void Close() override {
    std::deque<State::Queued> kept;
    std::deque<State::Queued> dropped;
    {
      MutexLock lock(state_->mutex);
      if (state_->streams[connection_].closed) return;
      state_->streams[connection_].closed = true;
      for (State::Queued& queued : state_->frames) {
        (queued.connection == connection_ ? dropped : kept).push_back(std::move(queued));
      }
      state_->frames.swap(kept);
      state_->changed.NotifyAll();
    }
    // The payloads are released outside the lock, because that calls their lender.
  }

 private:
  const std::shared_ptr<State> state_;
  const uint32_t stream_;
  const uint64_t connection_;
};

std::shared_ptr<SessionChannel> FakeAggregator::OpenSession(
    std::shared_ptr<SessionListener> listener) {
  MutexLock lock(state_->mutex);
  const uint64_t connection = ++state_->next_connection;
  state_->sessions[connection].listener = std::move(listener);
  state_->changed.NotifyAll();
  return std::make_shared<FakeSession>(state_, connection);
}

std::shared_ptr<StreamChannel> FakeAggregator::OpenStream(
    uint32_t number, SessionToken token, const PlacedShard& shard,
    std::shared_ptr<StreamListener> listener) {
  MutexLock lock(state_->mutex);
  const uint64_t connection = ++state_->next_connection;
  const uint32_t stream = StreamAt(shard.shard, number);
  state_->streams[connection] = {token, std::move(listener), false, 0};
  state_->opened[stream] = connection;
  state_->changed.NotifyAll();
  return std::make_shared<FakeStream>(state_, stream, connection);
}

// ---- the test's end

bool FakeAggregator::AwaitState(const std::function<bool(State&)>& ready) {
  const auto until = InAMinute();
  MutexLock lock(state_->mutex);
  while (!ready(*state_)) {
    if (std::chrono::steady_clock::now() >= until) {
      ADD_FAILURE() << "What the test waits for did not happen within a minute.";
      return false;
    }
    state_->changed.WaitUntil(state_->mutex, until);
  }
  return true;
}

void FakeAggregator::AcceptSession() {
  std::shared_ptr<SessionListener> listener;
  const bool came = AwaitState([&](State& state) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (state.sessions.empty() || state.sessions.rbegin()->first <= session_) return false;
    session_ = state.sessions.rbegin()->first;
    listener = state.sessions.rbegin()->second.listener;
    return true;
  });
  sending_.clear();
  reader_ = std::make_unique<wire::MessageReader<ToAggregator>>();
  if (came) listener->OnUp();
}

void FakeAggregator::RefuseSession() {
  std::shared_ptr<SessionListener> listener;
  const bool came = AwaitState([&](State& state) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (state.sessions.empty() || state.sessions.rbegin()->first <= session_) return false;
    session_ = state.sessions.rbegin()->first;
    listener = state.sessions.rbegin()->second.listener;
    return true;
  });
  if (came) listener->OnDown(absl::UnavailableError("connection refused"));
}

std::pair<uint64_t, std::shared_ptr<StreamListener>> FakeAggregator::AwaitStream(
    uint32_t stream, SessionToken token) {
  std::pair<uint64_t, std::shared_ptr<StreamListener>> found;
  AwaitState([&](State& state) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto opened = state.opened.find(stream);
    if (opened == state.opened.end()) return false;
    const State::Stream& newest = state.streams[opened->second];
    if (newest.token != token || newest.closed) return false;
    found = {opened->second, newest.listener};
    state.opened.erase(opened);
    return true;
  });
  return found;
}

void FakeAggregator::AcceptStream(uint32_t stream, SessionToken token) {
  const auto [connection, listener] = AwaitStream(stream, token);
  if (listener == nullptr) return;
  sending_[stream] = Sending{connection};
  const auto message = std::make_shared<OwnPayload>(*EncodeHead({Bound{}}));
  EXPECT_TRUE(sending_[stream].reader.Read(message).ok());
  listener->OnUp();
}

void FakeAggregator::RefuseStream(uint32_t stream, SessionToken token) {
  const auto listener = AwaitStream(stream, token).second;
  if (listener != nullptr) listener->OnDown(absl::UnavailableError("connection refused"));
}

void FakeAggregator::LoseSession() {
  std::shared_ptr<SessionListener> listener;
  {
    MutexLock lock(state_->mutex);
    listener = state_->sessions[session_].listener;
  }
  listener->OnDown(absl::UnavailableError("connection reset"));
}

void FakeAggregator::LoseStream(uint32_t stream) {
  std::shared_ptr<StreamListener> listener;
  const uint64_t connection = sending_.at(stream).connection;
  std::deque<State::Queued> dropped;
  {
    MutexLock lock(state_->mutex);
    listener = state_->streams[connection].listener;
    dropped.swap(state_->frames);
    for (auto it = dropped.begin(); it != dropped.end();) {
      if (it->connection != connection) {
        state_->frames.push_back(std::move(*it));
        it = dropped.erase(it);
      } else {
        ++it;
      }
    }
  }
  listener->OnDown(absl::UnavailableError("connection reset"));
}

void FakeAggregator::AwaitSessionClosed() {
  AwaitState([&](State& state)
                 ABSL_NO_THREAD_SAFETY_ANALYSIS { return state.sessions[session_].closed; });
}

void FakeAggregator::AwaitStreamClosed(uint32_t stream) {
  const uint64_t connection = sending_.at(stream).connection;
  AwaitState([&](State& state)
                 ABSL_NO_THREAD_SAFETY_ANALYSIS { return state.streams[connection].closed; });
}

void FakeAggregator::Send(const ToWorker& message) {
  const absl::StatusOr<std::vector<std::string>> pieces = wire::EncodePieces(message);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  wire::MessageReader<ToWorker> reader;
  for (const std::string& piece : *pieces) {
    auto taken = reader.Read(piece);
    ASSERT_TRUE(taken.ok()) << taken.status();
    if (taken->messages.empty()) continue;
    std::shared_ptr<SessionListener> listener;
    {
      MutexLock lock(state_->mutex);
      listener = state_->sessions[session_].listener;
      state_->unconsumed += taken->messages.front().bytes;
    }
    listener->OnMessage(std::move(taken->messages.front().message), taken->messages.front().bytes);
  }
}

std::optional<ToAggregator> FakeAggregator::NextMessage() {
  while (const std::optional<std::string> next = NextOnSession()) {
    auto taken = reader_->Read(*next);
    EXPECT_TRUE(taken.ok()) << taken.status();
    if (!taken.ok()) return std::nullopt;
    if (!taken->messages.empty()) return std::move(taken->messages.front().message);
  }
  return std::nullopt;
}

std::optional<std::string> FakeAggregator::NextOnSession() {
  std::string encoded;
  const bool came = AwaitState([&](State& state) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto& messages = state.sessions[session_].messages;
    if (messages.empty()) return false;
    encoded = std::move(messages.front());
    messages.pop_front();
    return true;
  });
  if (!came) return std::nullopt;
  return encoded;
}

TakenFrame FakeAggregator::AwaitFrame() {
  State::Queued queued;
  const bool came = AwaitState([&](State& state) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (state.frames.empty()) return false;
    queued = std::move(state.frames.front());
    state.frames.pop_front();
    return true;
  });
  if (!came) return {};
  // In the pieces in which a channel would write them.
  const std::string sequence = wire::EncodeSequence(queued.sequence);
  const absl::StatusOr<std::string> head = EncodeHead(queued.frame);
  EXPECT_TRUE(head.ok()) << head.status();
  if (!head.ok()) return {};
  wire::Slices message = {sequence, *head};
  for (const std::string_view piece : queued.frame.payload.Pieces()) message.push_back(piece);
  const absl::StatusOr<wire::DecodedFrame> decoded = wire::DecodeFrame(message);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  if (!decoded.ok()) return {};
  EXPECT_EQ(decoded->sequence, queued.sequence);
  TakenFrame taken{queued.stream, decoded->header, ""};
  for (const std::string_view piece : decoded->payload) taken.payload.append(piece);
  return taken;
}

OutgoingFrame FakeAggregator::HoldFrame() {
  OutgoingFrame frame;
  AwaitState([&](State& state) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (state.frames.empty()) return false;
    frame = std::move(state.frames.front().frame);
    state.frames.pop_front();
    return true;
  });
  return frame;
}

void FakeAggregator::AwaitQueued(size_t count) {
  AwaitState([&](State& state)
                 ABSL_NO_THREAD_SAFETY_ANALYSIS { return state.frames.size() >= count; });
}

size_t FakeAggregator::queued() const {
  MutexLock lock(state_->mutex);
  return state_->frames.size();
}

void FakeAggregator::DropQueued() {
  std::deque<State::Queued> dropped;
  MutexLock lock(state_->mutex);
  dropped.swap(state_->frames);
}

uint64_t FakeAggregator::unconsumed() const {
  MutexLock lock(state_->mutex);
  return state_->unconsumed;
}

void FakeAggregator::SendResult(uint32_t stream, RoundNumber round, Ballot ballot,
                                const ChunkRange& range, const std::string& tensor,
                                const std::string& payload, const std::string& claimed) {
  wire::FrameHeader header;
  header.kind = wire::ResultHeader{kLane, round, ballot, range};
  for (uint32_t i = 0; i < range.count; ++i) {
    header.chunk_digests.push_back(
        DigestOf(tensor, claimed.substr(i * kChunkBytes, kChunkBytes), range.first + i));
  }
  SendFrame(stream, header, payload);
}

void FakeAggregator::SendBlob(uint32_t stream, const BlobKey& key, uint32_t first, uint32_t count,
                              const std::string& payload) {
  wire::FrameHeader header;
  header.kind = wire::BlobHeader{key, first, count};
  SendFrame(stream, header, payload);
}

void FakeAggregator::SendFrame(uint32_t stream, const wire::FrameHeader& header,
                               const std::string& payload) {
  const wire::Slices pieces = {payload};
  const absl::StatusOr<std::string> head = wire::EncodeFrame(header, pieces);
  ASSERT_TRUE(head.ok()) << head.status();
  SendRaw(stream, wire::EncodeSequence(++sending_.at(stream).sequence) + *head + payload);
}

void FakeAggregator::SendRaw(uint32_t stream, const std::string& message) {
  Sending& sending = sending_.at(stream);
  absl::StatusOr<IncomingFrame> frame = sending.reader.Read(std::make_shared<OwnPayload>(message));
  ASSERT_TRUE(frame.ok()) << frame.status();
  std::shared_ptr<StreamListener> listener;
  {
    MutexLock lock(state_->mutex);
    listener = state_->streams[sending.connection].listener;
    state_->unconsumed += frame->message_bytes;
  }
  listener->OnFrame(*std::move(frame));
}

// ---- values

Digest DigestOf(const std::string& tensor, const std::string& bytes, uint32_t first) {
  if (bytes.empty()) return 0;
  kernels::RangeDigest digest{kernels::TensorKey(tensor), first};
  digest.Update(bytes.data(), bytes.size());
  return digest.Finish().low;
}

std::string Noise(size_t size, uint64_t seed) {
  std::string bytes(size, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

TensorSpec F32(const std::string& name, uint64_t elements) {
  return {name, DType::kF32, {elements}};
}

ErrorCode CodeOf(const absl::Status& status) { return wire::ToError(status).code; }

// ---- the rig

Rig::Rig(uint32_t stream_count, const std::function<void(WorkerOptions&)>& change, uint64_t a)
    : model{F32("a", a), F32("b", 25), F32("c", 0)}, streams(stream_count) {
  WorkerOptions options;
  options.core.job = "job";
  options.core.worker = "w0";
  options.core.streams = streams;
  options.core.follows_link = false;  // Frames are sent whether or not a test acknowledges them.
  if (change != nullptr) change(options);
  auto connected = Worker::Connect(std::move(options), aggregator, clock);
  EXPECT_TRUE(connected.ok()) << connected.status();
  worker = *std::move(connected);
  lane = *worker->Register("g", LaneKind::kGradient, model);
  for (TensorHandle handle = 0; handle < model.size(); ++handle) {
    gradients[handle] = Noise(*TensorBytes(model[handle]), 100 + handle);
  }
}

void Rig::Connect() {
  aggregator.AcceptSession();
  const Hello hello = aggregator.Await<Hello>();
  EXPECT_EQ(hello.job, "job");
  EXPECT_EQ(hello.worker, "w0");
  EXPECT_NE(hello.nonce, 0u);
  Welcome welcome;
  welcome.token = token;
  welcome.incarnation = {kTerm, 1};
  welcome.run = "run";
  welcome.term = kTerm;
  welcome.frame_bytes = 2 * kChunkBytes;
  welcome.heartbeat = absl::Milliseconds(500);
  welcome.placements = placements;
  aggregator.Send(welcome);
  TakeStreams(token);
}

RoundPlacement Rig::Placed() const {
  if (placements.empty()) return {};
  return {placements.back().number, static_cast<uint32_t>(model.size())};
}

void Rig::TakeStreams(SessionToken presented) {
  for (uint32_t i = 0; i < streams; ++i) aggregator.AcceptStream(i, presented);
}

void Rig::Admit(RoundNumber round, uint64_t chain) {
  const Register request = aggregator.Await<basin::Register>();
  EXPECT_EQ(request.lane, "g");
  EXPECT_EQ(request.tensors, model);
  aggregator.Send(
      LaneLayout{kLane, "g", LaneKind::kGradient, 0, request.tensors, round, window, Placed()});
  EXPECT_EQ(aggregator.Await<LayoutSeen>().version, model.size());
  ASSERT_TRUE(worker->Call(DeclareReady{}).ok());
  aggregator.Await<basin::Ready>();
  aggregator.Send(MembershipChanged{membership,
                                    Role::kMember,
                                    std::nullopt,
                                    {StartRound{"g", kLane, round, chain, {}, Placed()}}});
  ASSERT_TRUE(worker->AwaitMember(absl::InfiniteDuration()).ok());
}

void Rig::Join(RoundNumber round, uint64_t chain) {
  Connect();
  Admit(round, chain);
}

Welcome Rig::WelcomeBack(RoundNumber round) const {
  Welcome welcome;
  welcome.token = token + 1;
  welcome.incarnation = {kTerm, 1};
  welcome.run = "run";
  welcome.term = kTerm;
  welcome.role = Role::kMember;
  welcome.membership = membership;
  welcome.frame_bytes = 2 * kChunkBytes;
  welcome.heartbeat = absl::Milliseconds(500);
  welcome.layouts = {LaneLayout{kLane, "g", LaneKind::kGradient, 0, model, round, window}};
  return welcome;
}

void Rig::Begin() {
  BeginRound begin;
  begin.lane = lane.lane;
  begin.spec.op = ReduceOp::kAverage;
  const absl::Status status = worker->Begin(begin);
  ASSERT_TRUE(status.ok()) << status;
}

void Rig::PushAll() {
  for (TensorHandle handle = 0; handle < model.size(); ++handle) {
    const std::string& gradient = gradients[handle];
    ASSERT_TRUE(
        worker->Push(lane.lane, {lane.tensors[handle], gradient.data(), gradient.size()}).ok());
  }
}

std::map<TensorIndex, std::string> Rig::TakeContribution(uint32_t chunks, RoundNumber round) {
  std::map<TensorIndex, std::string> taken;
  for (uint32_t left = chunks; left > 0;) {
    const TakenFrame frame = aggregator.AwaitFrame();
    const auto* header = std::get_if<wire::ContributionHeader>(&frame.header.kind);
    EXPECT_NE(header, nullptr);
    if (header == nullptr) return taken;
    EXPECT_EQ(header->lane, kLane);
    EXPECT_EQ(header->round, round);
    EXPECT_EQ(frame.header.chunk_digests.size(), CountChunks(header->runs));
    Credit credit{kLane, round, window, {}, {}};
    size_t index = 0;
    uint64_t begin = 0;
    for (const ChunkRun& run : header->runs) {
      const std::string& tensor = model[run.range.tensor].name;
      const uint64_t size = header->runs.size() == 1 ? frame.payload.size() : run.bytes;
      const std::string part = frame.payload.substr(begin, size);
      begin += size;
      for (uint32_t i = 0; i < run.range.count; ++i) {
        EXPECT_EQ(frame.header.chunk_digests[index++],
                  DigestOf(tensor, part.substr(i * kChunkBytes, kChunkBytes), run.range.first + i));
      }
      std::string& bytes = taken[run.range.tensor];
      bytes.resize(*TensorBytes(model[run.range.tensor]));
      bytes.replace(run.range.first * kChunkBytes, part.size(), part);
      left -= std::min(left, run.range.count);
      credit.acked.push_back(run.range);
    }
    aggregator.Send(std::move(credit));
  }
  return taken;
}

RoundValue Rig::ValueOf(const std::map<TensorIndex, std::string>& results) const {
  RoundValue value;
  value.outcome = Outcome::kCommitted;
  value.spec.op = ReduceOp::kAverage;
  value.contributors = {{"w0", {kTerm, 1}, 1}, {"w1", {kTerm, 2}, 1}};
  value.divisor = 2;
  value.layout_version = static_cast<uint32_t>(model.size());
  for (TensorIndex tensor = 0; tensor < model.size(); ++tensor) {
    const auto found = results.find(tensor);
    if (found == results.end()) {
      value.tensor_divisors.push_back({tensor, 0});
    } else {
      value.digest += DigestOf(model[tensor].name, found->second);
    }
  }
  return value;
}

VerdictRecord Rig::RecordOf(const RoundValue& value, RoundNumber round, uint64_t chain) const {
  VerdictRecord record;
  record.round = round;
  record.ballot = {kTerm, 1};
  record.value_ballot = {kTerm, 1};
  record.value = value;
  record.next = membership;
  record.chain = ExtendChain(chain, round, value);
  return record;
}

void Rig::SendResults(const std::map<TensorIndex, std::string>& results, RoundNumber round,
                      Ballot ballot) {
  uint32_t turn = 0;
  for (auto it = results.rbegin(); it != results.rend(); ++it) {
    for (uint32_t chunk = ChunkCount(it->second.size()); chunk-- > 0;) {
      const std::string bytes = it->second.substr(chunk * kChunkBytes, kChunkBytes);
      aggregator.SendResult(turn++ % streams, round, ballot, {it->first, chunk, 1},
                            model[it->first].name, bytes, bytes);
    }
  }
}

VerdictRecord Rig::Conclude(const RoundValue& value, RoundNumber round, uint64_t chain) {
  VerdictRecord record = RecordOf(value, round, chain);
  aggregator.Send(Prepared{kLane, round, record.ballot, record.value_ballot, value});
  EXPECT_EQ(aggregator.Await<Staged>().round, round);
  aggregator.Send(Verdict{kLane, record, std::nullopt, Placed()});
  return record;
}

void Rig::Until(const std::function<bool(const Runner&)>& look) {
  const auto until = InAMinute();
  bool seen = false;
  while (!seen && std::chrono::steady_clock::now() < until) {
    ASSERT_TRUE(worker->Inspect([&](const Runner& runner) { seen = look(runner); }).ok());
  }
  EXPECT_TRUE(seen) << "What the test waits for did not happen within a minute.";
}

std::map<TensorIndex, std::string> Results(const Rig& rig) {
  return {{0, Noise(*TensorBytes(rig.model[0]), 1)}, {1, Noise(100, 2)}, {2, ""}};
}

}  // namespace basin::client

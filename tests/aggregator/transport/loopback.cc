// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/transport/loopback.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <utility>

#include "proto/wire/frame.h"
#include "proto/wire/session.h"
#include "proto/wire/session_stream.h"
#include "runtime/grpc/byte_buffer.h"

namespace basin::aggregator {
namespace {

uint64_t StatusLine(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    if (word != name) continue;
    uint64_t kibibytes = 0;
    file >> kibibytes;
    return kibibytes * 1024;
  }
  ADD_FAILURE() << "the system does not tell " << name;
  return 0;
}

}  // namespace

Loopback::Loopback(ServerOptions server_options, EngineOptions engine_options)
    : engine(std::move(engine_options), clock, *reducer, notes, nullptr),
      server(std::move(server_options)) {
  const absl::StatusOr<int> started = server.Start(engine);
  EXPECT_TRUE(started.ok()) << started.status();
  port = started.value_or(0);
}

Loopback::~Loopback() {
  if (testing::Test::HasFailure()) {
    for (const Note& note : notes.All()) {
      std::cerr << NoteKindName(note.kind) << " " << note.worker << ": " << note.text << "\n";
    }
  }
  std::map<uint64_t, std::shared_ptr<RawStream>> streams;
  {
    MutexLock lock(mutex_);
    streams.swap(streams_);
  }
  streams.clear();
  server.Stop();
}

void Loopback::Pass(absl::Duration time) {
  clock.Advance(time);
  // The first look is answered before deadlines are judged, the second one after.
  for (int i = 0; i < 2; ++i) Look<int>([](const Runner&) { return 0; });
}

uint64_t Loopback::Open(const std::string& method,
                        const std::function<void(uint64_t, const grpc::ByteBuffer&)>& take) {
  uint64_t id;
  {
    MutexLock lock(mutex_);
    id = next_++;
  }
  RawStream::Options options;
  options.on_message = [id, take](const grpc::ByteBuffer& message) { take(id, message); };
  options.on_done = [this, id](const absl::Status& why) { transport.CloseStream(id, why); };
  auto stream = std::make_shared<RawStream>(Channel(), method, std::move(options));
  MutexLock lock(mutex_);
  streams_[id] = std::move(stream);
  return id;
}

SessionId Loopback::OpenSession() {
  const auto reader = std::make_shared<wire::MessageReader<ToWorker>>();
  reader->AllowBatches();
  const auto frames = std::make_shared<FrameReader>(
      FrameReader::InSession(FrameSender::kAggregator, [] { return nullptr; }));
  return Open(kSessionMethod,
              [this, reader, frames](uint64_t session, const grpc::ByteBuffer& message) {
                auto taken = reader->Read(StringOf(message));
                ASSERT_TRUE(taken.ok()) << taken.status();
                for (const auto& one : taken->messages) {
                  if (const auto* welcome = std::get_if<Welcome>(&one.message)) {
                    MutexLock lock(mutex_);
                    sessions_[welcome->token] = session;
                  }
                  transport.Send({session}, one.message);
                }
                for (wire::BatchedFrame& one : taken->frames) {
                  ++batched_results;
                  StreamId stream;
                  {
                    MutexLock lock(mutex_);
                    stream = numbers_.at(one.stream);
                  }
                  Take(stream, frames->Read(std::make_shared<OwnPayload>(std::move(one.frame))));
                }
              });
}

void Loopback::OnMessage(SessionId session, ToAggregator message) {
  const auto pieces = wire::EncodePieces(message);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  if (!batches) {
    for (const std::string& piece : *pieces) raw(session).Write(piece);
    return;
  }
  std::vector<std::string> out;
  {
    MutexLock lock(mutex_);
    wire::Outbox<ToAggregator>& outbox = outboxes_[session];
    if (!std::holds_alternative<Hello>(message)) outbox.UseBatches();
    outbox.Add(*pieces, false);
    if (!std::holds_alternative<Begin>(message)) out = outbox.Take();
  }
  for (const std::string& one : out) raw(session).Write(one);
}

void Loopback::CloseSession(SessionId session) { raw(session).CloseWrites(); }

StreamId Loopback::OpenStream(SessionToken token) {
  const StreamId stream =
      Open(kExchangeMethod,
           [this](uint64_t id, const grpc::ByteBuffer& message) { TakeFrameFrom(id, message); });
  uint32_t number;
  {
    MutexLock lock(mutex_);
    number = static_cast<uint32_t>(numbers_.size()) % kMaxStreams;
    numbers_[number] = stream;
    const auto session = sessions_.find(token);
    if (session != sessions_.end()) places_[stream] = {session->second, number};
  }
  raw(stream).Write(*EncodeHead({Bind{token, number}}));
  return stream;
}

void Loopback::TakeFrameFrom(StreamId stream, const grpc::ByteBuffer& message) {
  absl::StatusOr<IncomingFrame> frame = absl::UnknownError("");
  {
    MutexLock lock(mutex_);
    FrameReader& reader = readers_.try_emplace(stream, FrameSender::kAggregator).first->second;
    frame = reader.Read(PayloadOf(message));
  }
  Take(stream, std::move(frame));
}

void Loopback::Take(StreamId stream, absl::StatusOr<IncomingFrame> frame) {
  ASSERT_TRUE(frame.ok()) << frame.status();
  if (std::holds_alternative<Bound>(frame->header)) return transport.AcceptStream(stream, 0, kJob);
  OutgoingFrame taken{frame->header, frame->encoding, frame->claimed};
  taken.payload.Append({frame->payload, 0, frame->payload_bytes});
  transport.Send({stream}, taken);
}

std::string Loopback::Encode(uint64_t connection, const IncomingFrame& frame) {
  uint64_t sequence;
  {
    MutexLock lock(mutex_);
    sequence = ++sent_[connection];
  }
  OutgoingFrame sent{frame.header, frame.encoding, frame.claimed};
  sent.payload.Append({frame.payload, 0, frame.payload_bytes});
  const absl::StatusOr<std::string> head = EncodeHead(sent);
  EXPECT_TRUE(head.ok()) << head.status();
  std::string bytes = wire::EncodeSequence(sequence) + head.value_or("");
  for (const std::string_view piece : frame.payload->pieces()) bytes += piece;
  return bytes;
}

void Loopback::OnFrame(StreamId stream, IncomingFrame frame) {
  if (!batches || frame.payload_bytes + kMaxFrameOverheadBytes > kMaxBatchedFrameBytes / 2) {
    raw(stream).Write(Encode(stream, frame));
    return;
  }
  std::pair<SessionId, uint32_t> place;
  {
    MutexLock lock(mutex_);
    place = places_.at(stream);
  }
  std::string bytes = Encode(place.first, frame);
  MutexLock lock(mutex_);
  outboxes_[place.first].Add({place.second, std::move(bytes)});
}

void Loopback::CloseStream(StreamId stream) { raw(stream).Cancel(); }

RawStream& Loopback::raw(uint64_t connection) {
  MutexLock lock(mutex_);
  return *streams_.at(connection);
}

std::string Encoded(const ToAggregator& message) {
  const absl::StatusOr<std::string> encoded = wire::Encode(message);
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  return encoded.value_or("");
}

Hello HelloOf(const WorkerId& worker, const Model& model) {
  Hello hello;
  hello.job = kJob;
  hello.run = "run";
  hello.worker = worker;
  hello.nonce = std::hash<std::string>()(worker) | 1;
  hello.fresh = true;
  hello.settings = model.settings;
  return hello;
}

MemoryGrowth::MemoryGrowth()
    : before_([] {
        malloc_trim(0);
        std::ofstream("/proc/self/clear_refs") << "5";  // The peak begins anew.
        return StatusLine("VmRSS:");
      }()) {}

uint64_t MemoryGrowth::Peak() const {
  // The kernel sums up its counts per processor now and then, so that the peak may be lower.
  return std::max(before_, StatusLine("VmHWM:")) - before_;
}

}  // namespace basin::aggregator

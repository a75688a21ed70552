// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/grpc/connector.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/transport/grpc/failure.h"
#include "grpc/grpc.h"
#include "proto/wire/session_stream.h"
#include "protocol/limits/limits.h"
#include "protocol/version.h"
#include "runtime/frames/reader.h"
#include "runtime/grpc/byte_buffer.h"
#include "runtime/grpc/greeting.h"

namespace basin::client {
namespace {

// For a connection to come about. gRPC's own is 20 s; a worker that waits for so long for one
// address of an aggregator that has moved loses the job's time.
constexpr absl::Duration kConnectTime = absl::Seconds(5);
// The same where another address may be that of the leader: the machine of this one may be gone.
constexpr absl::Duration kOneOfSeveral = absl::Seconds(1);

using Course = GrpcConnector::Course;

constexpr char kSessionMethod[] = "/basin.v1.Session/Run";
constexpr char kExchangeMethod[] = "/basin.v1.Exchange/Run";

// The waiting messages of a session: two of the largest, more than a trainer sends in a minute.
constexpr uint64_t kMaxSessionQueueBytes = 2 * uint64_t{kMaxAssembledBytes};

absl::Status Broken(const absl::Status& status, const std::string& peer) {
  return absl::Status(status.code(), absl::StrCat(peer, " broke the protocol: ", status.message()));
}

class SessionCall : public Call {
 public:
  SessionCall(const CallOptions& options, std::shared_ptr<GrpcConnector::Local> local,
              std::shared_ptr<SessionListener> listener,
              std::shared_ptr<std::atomic<Course>> course)
      : Call(options, kSessionMethod, kMaxSessionQueueBytes, Early::kFirstMessage),
        peer_(DescribePeer(options.address, options.shard)),
        local_(std::move(local)),
        listener_(std::move(listener)),
        course_(std::move(course)),
        frames_(FrameReader::InSession(FrameSender::kAggregator, [this] { return Shared(); })) {
    reader_.AllowBatches();
  }

  // Whether the aggregator takes batches.
  bool batches() const { return batches_; }

 private:
  absl::Status Take(const grpc::ByteBuffer& message) override {
    // Reads the name before the welcome, whose token opens the local socket.
    if (local_ != nullptr && !std::exchange(greeted_, true)) {
      MutexLock lock(local_->mutex);
      if (!local_->refused) local_->name = LocalSocketIn(context());
    }
    auto taken = reader_.Read(StringOf(message));
    if (!taken.ok()) return Broken(taken.status(), peer_);
    Batch batch;
    for (wire::BatchedFrame& one : taken->frames) {
      absl::StatusOr<IncomingFrame> frame =
          frames_.Read(std::make_shared<OwnPayload>(std::move(one.frame)));
      if (absl::IsNotFound(frame.status())) continue;  // Dropped; see FrameReader.
      if (!frame.ok()) return Broken(frame.status(), peer_);
      batch.frames.push_back(*std::move(frame));
    }
    for (auto& one : taken->messages) {
      const auto* welcome = std::get_if<Welcome>(&one.message);
      if (welcome != nullptr) {
        *course_ = Course::kWelcome;
        batches_ = (welcome->features & kFeatureBatches) != 0;
        if ((welcome->features & kFeatureChecksums) != 0) {
          if (absl::Status sealed = reader_.RequireSeals(); !sealed.ok()) {
            return Broken(sealed, peer_);
          }
        }
        if (local_ != nullptr) {
          MutexLock lock(local_->mutex);
          local_->features = welcome->features;
        }
      }
      batch.messages.push_back(std::move(one.message));
    }
    if (batch.messages.size() == 1 && batch.frames.empty()) {
      listener_->OnMessage(std::move(batch.messages.front()), message.Length());
    } else if (!batch.messages.empty() || !batch.frames.empty()) {
      listener_->OnBatch(std::move(batch), message.Length());
    } else {
      Consumed(message.Length());  // The reader itself limits the message that it keeps.
    }
    return absl::OkStatus();
  }
  void Over(const absl::Status& why) override {
    // Whatever was refused, it is sent once more without references.
    if (Shared() != nullptr && absl::IsInvalidArgument(why)) {
      MutexLock lock(local_->mutex);
      local_->refused = true;
    }
    Course welcome = Course::kWelcome;
    course_->compare_exchange_strong(welcome, Course::kLost);
    listener_->OnDown(why);
  }
  std::shared_ptr<Segments> Shared() const {
    return local_ == nullptr ? nullptr : local_->segments();
  }

  const std::string peer_;
  const std::shared_ptr<GrpcConnector::Local> local_;
  const std::shared_ptr<SessionListener> listener_;
  const std::shared_ptr<std::atomic<Course>> course_;
  std::atomic<bool> batches_{false};
  // These belong to the read in flight.
  wire::MessageReader<ToWorker> reader_;
  FrameReader frames_;
  bool greeted_ = false;
};

class StreamCall : public Call {
 public:
  StreamCall(const CallOptions& options, std::shared_ptr<GrpcConnector::Local> local,
             std::shared_ptr<StreamListener> listener)
      : Call(options, kExchangeMethod, kBoundedByWriter, Early::kAll),
        peer_(DescribePeer(options.address, options.shard)),
        local_(std::move(local)),
        listener_(std::move(listener)),
        reader_(FrameSender::kAggregator, [this] { return Shared(); }) {}

 private:
  absl::Status Take(const grpc::ByteBuffer& message) override {
    absl::StatusOr<IncomingFrame> frame = reader_.Read(PayloadOf(message));
    if (absl::IsNotFound(frame.status())) {  // Dropped; see FrameReader.
      Consumed(message.Length());
      return absl::OkStatus();
    }
    if (!frame.ok()) return Broken(frame.status(), peer_);
    if (std::holds_alternative<Bound>(frame->header)) {
      Consumed(frame->message_bytes);
      listener_->OnUp();
    } else {
      listener_->OnFrame(*std::move(frame));
    }
    return absl::OkStatus();
  }
  void Over(const absl::Status& why) override {
    // Whatever was refused, it is sent once more without references.
    if (const auto segments = Shared(); segments != nullptr && absl::IsInvalidArgument(why)) {
      segments->Close();
    }
    listener_->OnDown(why);
  }
  std::shared_ptr<Segments> Shared() const {
    return local_ == nullptr ? nullptr : local_->segments();
  }

  const std::string peer_;
  const std::shared_ptr<GrpcConnector::Local> local_;
  const std::shared_ptr<StreamListener> listener_;
  FrameReader reader_;  // Belongs to the read in flight.
};

// The worker's reference to a stream must not keep the call alive: gRPC keeps the unsent messages
// of a call as long as it exists.
template <typename Held, typename F>
void IfAlive(const std::weak_ptr<Held>& held, F&& act) {
  if (const std::shared_ptr<Held> call = held.lock()) act(*call);
}

}  // namespace

// Belongs to the loop.
class GrpcConnector::Sending {
 public:
  explicit Sending(std::weak_ptr<SessionCall> call) : call_(std::move(call)) {}

  void Send(std::string message) {
    IfAlive(call_, [&](SessionCall& call) {
      if (!call.batches()) return call.Write(BufferOf(wire::Sealed(std::move(message))));
      outbox_.UseBatches();
      outbox_.Add({std::move(message)}, false);
    });
  }
  // False: the frame has to travel on its stream.
  bool Send(uint32_t stream, const SharedFrame& frame) {
    bool sent = false;
    IfAlive(call_, [&](SessionCall& call) {
      if (!call.batches() || !frame.FitsBatch()) return;
      outbox_.UseBatches();
      outbox_.Add({stream, frame.BytesWithSequence(++frames_)});
      sent = true;
    });
    return sent;
  }
  void Flush() {
    if (!outbox_.due()) return;
    IfAlive(call_, [&](Call& call) {
      for (std::string& message : outbox_.Take()) call.Write(BufferOf(std::move(message)));
    });
  }

 private:
  const std::weak_ptr<SessionCall> call_;
  wire::Outbox<ToAggregator> outbox_;
  uint64_t frames_ = 0;
};

namespace {

class GrpcSession : public SessionChannel {
 public:
  GrpcSession(std::weak_ptr<Call> call, std::shared_ptr<GrpcConnector::Sending> sending,
              std::shared_ptr<std::atomic<Course>> course)
      : call_(std::move(call)), sending_(std::move(sending)), course_(std::move(course)) {}
  ~GrpcSession() override { Finish(); }
  void Send(std::string message) override {
    if (sending_ != nullptr) sending_->Send(std::move(message));
  }
  void Consumed(uint64_t bytes) override {
    IfAlive(call_, [&](Call& call) { call.Consumed(bytes); });
  }
  void Close() override {
    // The worker gives this aggregator up, unless the session is lost already.
    Course welcome = Course::kWelcome;
    course_->compare_exchange_strong(welcome, Course::kNotWelcome);
    Finish();
  }

 private:
  void Finish() {
    if (sending_ == nullptr) return;
    sending_->Flush();
    sending_.reset();
    IfAlive(call_, [](Call& call) { call.Finish(); });
  }

  const std::weak_ptr<Call> call_;
  std::shared_ptr<GrpcConnector::Sending> sending_;  // Null once it is closed.
  const std::shared_ptr<std::atomic<Course>> course_;
};

class GrpcStream : public StreamChannel {
 public:
  // `connector`, `session`: where the memory is that is shared, and where small frames may travel;
  // none for a shard that is not the aggregator of the session.
  GrpcStream(std::weak_ptr<Call> call, uint32_t number, GrpcConnector* connector,
             std::weak_ptr<GrpcConnector::Sending> session)
      : call_(std::move(call)),
        number_(number),
        connector_(connector),
        session_(std::move(session)) {}
  ~GrpcStream() override { Cut(); }
  absl::Status Send(OutgoingFrame frame) override {
    const std::shared_ptr<Segments> segments =
        connector_ == nullptr ? nullptr : connector_->shared();
    std::optional<SharedPlaces> places;
    // Only these may be in shared memory: what a worker supplies is passed on to others.
    if (segments != nullptr && std::holds_alternative<ContributionHeader>(frame.header)) {
      places = PlacesOf(frame, *segments);
    }
    // Such a frame is sent again to an aggregator that cannot read the device, or has closed the
    // socket.
    if (!places.has_value() && frame.payload.AnyOnDevice()) {
      PayloadParts fetched;
      for (const PayloadPart& part : frame.payload.parts()) {
        const absl::StatusOr<PayloadPart> on_host = OnHost(part);
        if (!on_host.ok()) return on_host.status();
        fetched.Append(*on_host);
      }
      frame.payload = std::move(fetched);
    }
    absl::StatusOr<std::string> head =
        places.has_value() ? EncodeReference(frame, *places) : EncodeHead(frame);
    if (!head.ok()) return head.status();
    frame.payload = places.has_value() ? PayloadParts() : WithSmallJoined(frame.payload);
    IfAlive(call_, [&](Call& call) {
      const SharedFrame shared(*std::move(head), frame.payload);
      // The frames of a value arrive in order, and some are too large for the session.
      const bool may = !std::holds_alternative<BlobHeader>(frame.header);
      const auto session = may ? session_.lock() : nullptr;
      if (session != nullptr && session->Send(number_, shared)) return;
      call.Write(shared.WithSequence(++sequence_));
    });
    return absl::OkStatus();
  }
  uint64_t queued_bytes() const override {
    uint64_t bytes = 0;
    IfAlive(call_, [&](Call& call) { bytes = call.queued_bytes(); });
    return bytes;
  }
  void Consumed(uint64_t bytes) override {
    IfAlive(call_, [&](Call& call) { call.Consumed(bytes); });
  }
  void Close() override { Cut(); }

 private:
  void Cut() {
    IfAlive(call_, [](Call& call) { call.Cut(); });
  }

  const std::weak_ptr<Call> call_;
  const uint32_t number_;
  GrpcConnector* const connector_;
  const std::weak_ptr<GrpcConnector::Sending> session_;
  uint64_t sequence_ = 0;  // The number of the last frame.
};

}  // namespace

std::vector<std::string> AddressesIn(const std::string& text) { return absl::StrSplit(text, ','); }

GrpcConnector::GrpcConnector(const std::string& addresses, ClientTls tls,
                             const GrpcSettings& settings, const StreamWindow& window,
                             std::string token_file, bool local)
    : addresses_(AddressesIn(addresses)),
      local_(local ? std::make_shared<Local>() : nullptr),
      options_{addresses_.front(),
               "",
               std::move(tls),
               std::move(token_file),
               settings,
               window,
               std::make_shared<Calls>(),
               addresses_.size() > 1 ? kOneOfSeveral : kConnectTime} {
  // Held while there are no channels either: gRPC stops its threads with the last of its objects,
  // and would do that, and wait for it, on the worker's loop between two connections.
  grpc_init();
}

GrpcConnector::~GrpcConnector() {
  options_.calls->CutAll(options_.settings.keepalive_time + options_.settings.keepalive_timeout);
  options_.calls->Sweep();
  grpc_shutdown();
}

std::shared_ptr<SessionChannel> GrpcConnector::OpenSession(
    std::shared_ptr<SessionListener> listener) {
  options_.calls->Sweep();
  // An aggregator whose connection was lost may still be there.
  if (course_ != nullptr && *course_ != Course::kLost) place_ = (place_ + 1) % addresses_.size();
  options_.address = addresses_[place_];
  course_ = std::make_shared<std::atomic<Course>>(Course::kNotWelcome);
  const auto call = std::make_shared<SessionCall>(options_, local_, listener, course_);
  listener->OnUp();
  call->Start();
  const auto sending = std::make_shared<Sending>(call);
  sending_ = sending;
  return std::make_shared<GrpcSession>(call, sending, course_);
}

std::shared_ptr<StreamChannel> GrpcConnector::OpenStream(uint32_t number, SessionToken token,
                                                         const PlacedShard& shard,
                                                         std::shared_ptr<StreamListener> listener) {
  options_.calls->Sweep();
  const bool elsewhere = shard.shard != kCoordinatorShard;
  CallOptions options = options_;
  if (elsewhere) {
    options.address = shard.endpoint;
    options.shard = shard.name;
    options.connect_time = kConnectTime;
  }
  const auto call =
      std::make_shared<StreamCall>(options, elsewhere ? nullptr : local_, std::move(listener));
  const absl::StatusOr<std::string> bind = EncodeHead({Bind{token, number}});
  // A stream without it is refused by the aggregator, and opened again.
  if (bind.ok()) call->Write(BufferOf(*bind));
  call->Start();
  if (elsewhere) {
    return std::make_shared<GrpcStream>(call, number, nullptr, std::weak_ptr<Sending>());
  }
  if (local_ != nullptr) {
    std::unique_ptr<LocalLink> former;  // Ended without the lock.
    MutexLock lock(local_->mutex);
    // Each session has a link of its own, and tries once.
    if (local_->link != nullptr && local_->link->token() == token) {
      local_->name.clear();
    } else {
      former = std::move(local_->link);
    }
    if (!local_->name.empty()) {
      local_->link = LocalLink::Open(std::exchange(local_->name, ""), token, local_->features);
    }
  }
  return std::make_shared<GrpcStream>(call, number, this, sending_);
}

std::shared_ptr<Segments> GrpcConnector::Local::segments() {
  MutexLock lock(mutex);
  return link == nullptr ? nullptr : link->segments();
}

uint64_t GrpcConnector::features() const {
  return kFeatureBatches | kFeatureChecksums | kFeaturePlacement |
         (local_ == nullptr ? 0 : kFeatureDeviceMemory | kFeaturePlaces);
}

void GrpcConnector::Flush() {
  if (const auto sending = sending_.lock()) sending->Flush();
}

std::shared_ptr<Segments> GrpcConnector::shared() {
  std::shared_ptr<Segments> segments = local_ == nullptr ? nullptr : local_->segments();
  return segments == nullptr || segments->closed() ? nullptr : segments;
}

}  // namespace basin::client

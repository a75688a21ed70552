// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/joined/network.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "proto/wire/frame.h"
#include "proto/wire/session.h"

namespace basin::joined {
namespace {

class Pieces : public Payload {
 public:
  Pieces(std::string bytes, std::mt19937_64& random) : bytes_(std::move(bytes)) {
    for (size_t at = 0; at < bytes_.size();) {
      const size_t size = std::uniform_int_distribution<size_t>(1, 600'000)(random);
      pieces_.push_back(std::string_view(bytes_).substr(at, size));
      at += pieces_.back().size();
    }
  }
  absl::Span<const std::string_view> pieces() const override { return pieces_; }

 private:
  const std::string bytes_;
  std::vector<std::string_view> pieces_;
};

// It shares nothing with the status of another thread: ThreadSanitizer does not see the reference
// counts of Abseil's library.
absl::Status CopyOf(const absl::Status& status) {
  absl::Status copy(status.code(), status.message());
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    copy.SetPayload(type, absl::Cord(std::string(payload)));
  });
  return copy;
}

template <typename T>
T Valid(absl::StatusOr<T> result) {
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : T{};
}

std::string Encoded(uint64_t sequence, const OutgoingFrame& frame) {
  std::string message = wire::EncodeSequence(sequence) + Valid(EncodeHead(frame));
  for (const std::string_view piece : frame.payload.Pieces()) message.append(piece);
  return message;
}

}  // namespace

// ---- the clients' side

class Network::SessionEnd : public client::SessionChannel {
 public:
  SessionEnd(Network& network, LinkPtr link) : network_(network), link_(std::move(link)) {}
  ~SessionEnd() override { SessionEnd::Close(); }

  void Send(std::string message) override {
    const uint64_t bytes = message.size();
    MutexLock lock(network_.mutex_);
    network_.Put(
        link_->to_engine,
        [link = link_, message = std::move(message)](aggregator::Engine* engine) {
          if (engine == nullptr) return;
          engine->OnMessage(link->number, Valid(wire::DecodeToAggregator(message)), message.size());
        },
        bytes);
  }
  void Consumed(uint64_t bytes) override {
    MutexLock lock(network_.mutex_);
    network_.TakeConsumed(link_->to_client, bytes);
  }
  void Close() override {
    Items unheard;
    Items unsent;
    MutexLock lock(network_.mutex_);
    unheard = network_.Deafen(link_);
    unsent = network_.EndAtEngine(link_, /*drop=*/false);
  }

 private:
  Network& network_;
  const LinkPtr link_;
};

class Network::StreamEnd : public client::StreamChannel {
 public:
  StreamEnd(Network& network, LinkPtr link) : network_(network), link_(std::move(link)) {}
  ~StreamEnd() override { StreamEnd::Close(); }

  absl::Status Send(OutgoingFrame frame) override {
    const uint64_t bytes = frame.payload.bytes();
    MutexLock lock(network_.mutex_);
    if (link_->to_engine.ended) return absl::OkStatus();
    link_->queued += bytes;
    network_.Put(
        link_->to_engine,
        [network = &network_, link = link_, sequence = ++link_->to_engine.sequence, bytes,
         frame = std::move(frame)](aggregator::Engine* engine) {
          {
            MutexLock lock(network->mutex_);
            link->queued -= std::min(link->queued, bytes);
          }
          network->FrameAtEngine(link, Encoded(sequence, frame), engine);
        },
        bytes);
    return absl::OkStatus();
  }
  uint64_t queued_bytes() const override {
    MutexLock lock(network_.mutex_);
    return link_->queued;
  }
  void Consumed(uint64_t bytes) override {
    MutexLock lock(network_.mutex_);
    network_.TakeConsumed(link_->to_client, bytes);
  }
  void Close() override {
    Items unheard;
    Items unsent;
    MutexLock lock(network_.mutex_);
    unheard = network_.Deafen(link_);
    unsent = network_.EndAtEngine(link_, /*drop=*/true);
    link_->queued = 0;
  }

 private:
  Network& network_;
  const LinkPtr link_;
};

class Network::Connector : public client::Connector {
 public:
  Connector(Network& network, std::string worker) : network_(network), worker_(std::move(worker)) {}

  std::shared_ptr<client::SessionChannel> OpenSession(
      std::shared_ptr<client::SessionListener> listener) override {
    auto link = std::make_shared<Link>();
    link->worker = worker_;
    link->session = std::move(listener);
    MutexLock lock(network_.mutex_);
    network_.links_.push_back(link);
    network_.Put(link->to_engine, [network = &network_, link](aggregator::Engine* engine) {
      if (engine == nullptr) {
        MutexLock lock(network->mutex_);
        network->EndAtClient(link, false, absl::UnavailableError("nobody listens"));
        return;
      }
      MutexLock lock(network->mutex_);
      network->Number(link, engine->OpenSession());
      network->Put(link->to_client, [link](aggregator::Engine*) { link->session->OnUp(); });
    });
    return std::make_shared<SessionEnd>(network_, std::move(link));
  }

  std::shared_ptr<client::StreamChannel> OpenStream(
      uint32_t stream, SessionToken token, const PlacedShard&,
      std::shared_ptr<client::StreamListener> listener) override {
    auto link = std::make_shared<Link>();
    link->worker = worker_;
    link->data = std::move(listener);
    link->stream = stream;
    MutexLock lock(network_.mutex_);
    network_.links_.push_back(link);
    std::string bind = Encoded(0, {Bind{token, stream}});
    network_.Put(link->to_engine,
                 [network = &network_, link, bind = std::move(bind)](aggregator::Engine* engine) {
                   network->FrameAtEngine(link, bind, engine);
                 });
    return std::make_shared<StreamEnd>(network_, std::move(link));
  }

 private:
  Network& network_;
  const std::string worker_;
};

std::unique_ptr<client::Connector> Network::ConnectorFor(const std::string& worker) {
  return std::make_unique<Connector>(*this, worker);
}

// ---- the engine's side

void Network::Send(absl::Span<const aggregator::SessionId> sessions, const ToWorker& message) {
  const std::string encoded = Valid(wire::Encode(message));
  MutexLock lock(mutex_);
  for (const aggregator::SessionId session : sessions) {
    const LinkPtr link = Find(session);
    if (link == nullptr) continue;
    Put(
        link->to_client,
        [link, encoded](aggregator::Engine*) {
          link->session->OnMessage(Valid(wire::DecodeToWorker(encoded)), encoded.size());
        },
        encoded.size());
  }
}

void Network::CloseSession(aggregator::SessionId session) {
  MutexLock lock(mutex_);
  if (const LinkPtr link = Find(session)) {
    by_number_.erase(session);
    EndAtClient(link, /*drop=*/false, absl::OkStatus());
  }
}

void Network::AcceptStream(aggregator::StreamId stream, aggregator::SessionId, const JobName&) {
  MutexLock lock(mutex_);
  const LinkPtr link = Find(stream);
  if (link == nullptr) return;
  Put(link->to_client,
      [this, link](aggregator::Engine*) { FrameAtClient(link, Encoded(0, {Bound{}})); });
}

void Network::Send(absl::Span<const aggregator::StreamId> streams, const OutgoingFrame& frame) {
  MutexLock lock(mutex_);
  for (const aggregator::StreamId stream : streams) {
    const LinkPtr link = Find(stream);
    if (link == nullptr) continue;
    std::string message = Encoded(++link->to_client.sequence, frame);
    const uint64_t bytes = message.size();
    Put(
        link->to_client,
        [this, link, message = std::move(message)](aggregator::Engine*) {
          FrameAtClient(link, message);
        },
        bytes);
  }
}

void Network::CloseStream(aggregator::StreamId stream, const absl::Status& why) {
  Items unsent;
  Items unheard;
  MutexLock lock(mutex_);
  if (const LinkPtr link = Find(stream)) {
    by_number_.erase(stream);
    unheard = EndAtClient(link, /*drop=*/true, why);
    link->to_engine.ended = true;
    unsent.swap(link->to_engine.items);
  }
}

void Network::Consumed(uint64_t connection, uint64_t bytes) {
  MutexLock lock(mutex_);
  if (const LinkPtr link = Find(connection)) TakeConsumed(link->to_engine, bytes);
}

// ---- the test's side

Network::Network(uint64_t seed) : random_(seed), thread_([this] { Run(); }) {}

Network::~Network() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void Network::Serve(aggregator::Engine* engine) {
  std::vector<Items> dropped;
  MutexLock lock(mutex_);
  engine_ = nullptr;
  while (delivering_) changed_.Wait(mutex_);
  for (const LinkPtr& link : links_) {
    dropped.push_back(EndAtClient(link, /*drop=*/true, absl::UnavailableError("broken")));
    link->to_engine.ended = true;
    dropped.emplace_back().swap(link->to_engine.items);
    link->number = 0;  // The next engine gives the same numbers again.
  }
  by_number_.clear();
  engine_ = engine;
}

void Network::BreakAfterEvery(uint64_t deliveries) {
  MutexLock lock(mutex_);
  break_every_ = until_break_ = deliveries;
}

uint64_t Network::broken() const {
  MutexLock lock(mutex_);
  return broken_;
}

uint64_t Network::most_unconsumed() const {
  MutexLock lock(mutex_);
  return most_unconsumed_;
}

// ---- in between

void Network::Run() {
  Item item;
  aggregator::Engine* engine = nullptr;
  while (true) {
    {
      MutexLock lock(mutex_);
      delivering_ = false;
      changed_.NotifyAll();
      while (!PickOne(&item)) {
        if (stopping_) return;
        changed_.Wait(mutex_);
      }
      delivering_ = true;
      engine = engine_;
    }
    item.deliver(engine);
    item = {};
    BreakSome();
  }
}

void Network::BreakSome() {
  Items unheard;
  Items unsent;
  MutexLock lock(mutex_);
  if (break_every_ == 0 || --until_break_ > 0 || links_.empty()) return;
  until_break_ = break_every_;
  const LinkPtr link = links_[std::uniform_int_distribution<size_t>(0, links_.size() - 1)(random_)];
  if (link->to_client.ended) return;
  ++broken_;
  by_number_.erase(link->number);
  unheard = EndAtClient(link, /*drop=*/true, absl::UnavailableError("broken"));
  unsent = EndAtEngine(link, /*drop=*/true);
}

bool Network::PickOne(Item* item) {
  const auto over = [](const LinkPtr& link) {
    return link->to_engine.ended && link->to_client.ended && link->to_engine.items.empty() &&
           link->to_client.items.empty();
  };
  links_.erase(std::remove_if(links_.begin(), links_.end(), over), links_.end());
  std::vector<Pipe*> ready;
  for (const LinkPtr& link : links_) {
    for (Pipe* pipe : {&link->to_engine, &link->to_client}) {
      if (!pipe->items.empty() && pipe->unconsumed < kWindow) ready.push_back(pipe);
    }
  }
  if (ready.empty()) return false;
  Pipe& pipe = *ready[std::uniform_int_distribution<size_t>(0, ready.size() - 1)(random_)];
  *item = std::move(pipe.items.front());
  pipe.items.pop_front();
  pipe.unconsumed += item->bytes;
  most_unconsumed_ = std::max(most_unconsumed_, pipe.unconsumed);
  return true;
}

void Network::Put(Pipe& pipe, Deliver deliver, uint64_t bytes) {
  if (pipe.ended) return;
  pipe.items.push_back({std::move(deliver), bytes});
  changed_.NotifyAll();
}

Network::Items Network::EndAtEngine(const LinkPtr& link, bool drop) {
  Items dropped;
  Pipe& pipe = link->to_engine;
  if (pipe.ended) return dropped;
  if (drop) dropped.swap(pipe.items);
  pipe.unconsumed = 0;  // It will not be reported as Consumed.
  Put(pipe, [link](aggregator::Engine* engine) {
    if (engine == nullptr || link->number == 0) return;
    if (link->session != nullptr) {
      engine->CloseSession(link->number);
    } else {
      engine->CloseStream(link->number);
    }
  });
  pipe.ended = true;
  return dropped;
}

Network::Items Network::EndAtClient(const LinkPtr& link, bool drop, const absl::Status& why) {
  Items dropped;
  Pipe& pipe = link->to_client;
  if (pipe.ended) return dropped;
  if (drop) dropped.swap(pipe.items);
  pipe.unconsumed = 0;
  Put(pipe, [link, why = CopyOf(why)](aggregator::Engine*) {
    if (link->session != nullptr) {
      link->session->OnDown(why);
    } else {
      link->data->OnDown(why);
    }
  });
  pipe.ended = true;
  return dropped;
}

Network::Items Network::Deafen(const LinkPtr& link) {
  Items dropped;
  link->to_client.ended = true;
  dropped.swap(link->to_client.items);
  by_number_.erase(link->number);
  return dropped;
}

Network::LinkPtr Network::Find(uint64_t number) {
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? nullptr : found->second;
}

void Network::Number(const LinkPtr& link, uint64_t number) {
  link->number = number;
  by_number_[number] = link;
}

void Network::TakeConsumed(Pipe& pipe, uint64_t bytes) {
  pipe.unconsumed -= std::min(pipe.unconsumed, bytes);
  changed_.NotifyAll();
}

PayloadPtr Network::InPieces(std::string message) {
  return std::make_shared<Pieces>(std::move(message), random_);
}

void Network::FrameAtEngine(const LinkPtr& link, std::string message, aggregator::Engine* engine) {
  if (engine == nullptr) return;
  auto taken = link->engine_reader.Read(InPieces(std::move(message)));
  ASSERT_TRUE(taken.ok()) << taken.status();
  if (const auto* bind = std::get_if<Bind>(&taken->header)) {
    MutexLock lock(mutex_);
    Number(link, engine->OpenStream(bind->token));
  } else {
    engine->OnFrame(link->number, *std::move(taken));
  }
}

void Network::FrameAtClient(const LinkPtr& link, std::string message) {
  auto taken = link->client_reader.Read(InPieces(std::move(message)));
  ASSERT_TRUE(taken.ok()) << taken.status();
  if (std::holds_alternative<Bound>(taken->header)) {
    link->data->OnUp();
  } else {
    link->data->OnFrame(*std::move(taken));
  }
}

}  // namespace basin::joined

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Listeners that record their calls, and memory that reports when it is free.
//
// Every wait is for an event, and fails the test after a minute.
//
// Thread contract: safe from any thread.

#ifndef BASIN_TESTS_CLIENT_TRANSPORT_GRPC_LISTENERS_H_
#define BASIN_TESTS_CLIENT_TRANSPORT_GRPC_LISTENERS_H_

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/transport/channel.h"
#include "client/transport/contribution.h"
#include "gtest/gtest.h"
#include "runtime/mutex.h"
#include "tests/runtime/limit.h"

namespace basin::client {

// Things that happen, in order.
template <typename T>
class Received {
 public:
  void Add(T what) {
    MutexLock lock(mutex_);
    things_.push_back(std::move(what));
    changed_.NotifyAll();
  }
  std::optional<T> Await() {
    const auto limit = InAMinute();
    MutexLock lock(mutex_);
    while (things_.empty()) {
      if (std::chrono::steady_clock::now() > limit) {
        ADD_FAILURE() << "Nothing was heard.";
        return std::nullopt;
      }
      changed_.WaitUntil(mutex_, limit);
    }
    T what = std::move(things_.front());
    things_.pop_front();
    return what;
  }
  size_t size() const {
    MutexLock lock(mutex_);
    return things_.size();
  }

 private:
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<T> things_ ABSL_GUARDED_BY(mutex_);
};

struct Ears : public SessionListener {
  struct Message {
    ToWorker message;
    uint64_t bytes = 0;
  };
  void OnUp() override { up.Add(true); }
  void OnMessage(ToWorker message, uint64_t bytes) override {
    messages.Add({std::move(message), bytes});
  }
  void OnBatch(Batch batch, uint64_t) override { batches.Add(std::move(batch)); }
  void OnDown(const absl::Status& why) override { down.Add(std::string(why.ToString())); }

  Received<bool> up;
  Received<Message> messages;
  Received<Batch> batches;
  Received<std::string> down;
};

struct DataEars : public StreamListener {
  void OnUp() override { up.Add(true); }
  void OnFrame(IncomingFrame frame) override { frames.Add(std::move(frame)); }
  void OnDown(const absl::Status& why) override { down.Add(std::string(why.ToString())); }

  Received<bool> up;
  Received<IncomingFrame> frames;
  Received<std::string> down;
};

// A trainer's memory: lent in parts, and free again when every part came back.
class Lender {
 public:
  explicit Lender(std::string bytes)
      : bytes_(std::move(bytes)), loan_(std::make_shared<Loan>([this] { free.Add(true); })) {}
  ~Lender() {
    if (loan_ == nullptr) return;
    Recall();
    free.Await();
  }
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  PayloadPtr Lend() const {
    return std::make_shared<LentPayload>(loan_, bytes_.data(), bytes_.size());
  }
  const std::string& bytes() const { return bytes_; }
  // No more memory is lent; `free` is set when it has no holder.
  void Recall() { loan_.reset(); }

  Received<bool> free;

 private:
  const std::string bytes_;
  std::shared_ptr<Loan> loan_;
};

}  // namespace basin::client

#endif  // BASIN_TESTS_CLIENT_TRANSPORT_GRPC_LISTENERS_H_

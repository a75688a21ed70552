// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of a worker in a world without bytes: the client's core, and the shell that holds what
// stands for bytes. The simulator, the explorer and the scenarios derive from it: each has its own
// trainer and connections, and decides when something happens.
//
// `Bytes`: see AggregatorShell; for values also
//
//   Digest BlobDigestOf(const BlobKey& key, uint32_t chunk, uint64_t content) const;
//
// The deriving class, `Host`, has
//
//   void Step(const client::Event& event);  // Ends with CarryOut of each action.
//   void SendOn(uint32_t stream, Push or BlobFrame);
//   // What stands for the bytes that the trainer contributes.
//   Chunk ChunkOf(const client::SendContribution& send, const TensorSpec& spec, uint32_t chunk);
//   void Require(const absl::Status& status);  // A bad one: core and shell disagree.
//   void Do(action);  // For each action that is not about bytes: messages, connections, reports to
//                     // the trainer.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_WORLD_WORKER_PROCESS_H_
#define BASIN_TESTS_WORLD_WORKER_PROCESS_H_

#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/core/client.h"
#include "protocol/overloaded.h"
#include "tests/world/client_shell.h"

namespace basin::world {

template <typename Bytes>
class WorkerProcess {
 public:
  using Chunk = typename Bytes::Chunk;
  using Push = PushFrame<Chunk>;
  using Result = ResultFrame<Chunk>;

  const client::Client& core() const { return core_; }

 protected:
  explicit WorkerProcess(client::Config config) : core_(std::move(config)) {}

  template <typename Host>
  void Arrive(const Result& frame, Host& host) {
    result_ = &frame;
    host.Step(EventOf(Bytes(), frame));
    result_ = nullptr;
  }
  template <typename Host>
  void Arrive(const BlobFrame& frame, Host& host) {
    client::BlobReceived event{frame.key, frame.first, frame.count, {}};
    for (uint32_t i = 0; i < frame.count; ++i) {
      event.digests.push_back(Bytes().BlobDigestOf(frame.key, frame.first + i, frame.content));
    }
    value_ = &frame;
    host.Step(event);
    value_ = nullptr;
  }
  // The trainer serves a value from now on. Returns the event for its core.
  client::AnnounceBlob Serve(const BlobKey& key, const TensorSpec& spec, uint64_t content) {
    shell_.Serve(key, *TensorBytes(spec), content);
    client::AnnounceBlob announce{key, spec, 0};
    for (uint32_t chunk = 0; chunk < ChunkCount(*TensorBytes(spec)); ++chunk) {
      announce.digest += Bytes().BlobDigestOf(key, chunk, content);
    }
    return announce;
  }
  template <typename Host>
  void CarryOut(client::Action& action, Host& host);

  client::Client core_;
  ClientShell<Chunk> shell_;
  // The frame of the Step in progress; null when there is none.
  const Result* result_ = nullptr;
  const BlobFrame* value_ = nullptr;
};

template <typename Bytes>
template <typename Host>
void WorkerProcess<Bytes>::CarryOut(client::Action& action, Host& host) {
  const auto send_on = [&](uint32_t stream, auto frame) {
    absl::Status status = frame.status();
    if (status.ok()) host.SendOn(stream, *std::move(frame));
    return status;
  };
  host.Require(std::visit(
      Overloaded{
          [&](client::SendContribution& send) {
            const std::vector<client::RegisteredTensor>& tensors = core_.lanes()[send.lane].tensors;
            const auto spec_of = [&](client::TensorHandle tensor) -> const TensorSpec& {
              return tensors[tensor].spec;
            };
            host.SendOn(send.stream,
                        shell_.FrameOf(send, spec_of, [&](const TensorSpec& spec, uint32_t chunk) {
                          return host.ChunkOf(send, spec, chunk);
                        }));
            return absl::OkStatus();
          },
          [&](client::SendSupply& send) {
            const std::vector<TensorSpec>& layout = core_.lanes()[send.lane].layout.tensors();
            return send_on(send.stream,
                           shell_.FrameOf(send, [&](TensorIndex tensor) -> const TensorSpec& {
                             return layout[tensor];
                           }));
          },
          [&](client::SendBlob& send) { return send_on(send.stream, shell_.FrameOf(send)); },
          [&](client::KeepResult& keep) { return shell_.Do(keep, result_); },
          [&](client::KeepBlob& keep) { return shell_.Do(keep, value_); },
          [&](auto& other) {
            host.Do(other);
            return absl::OkStatus();
          },
      },
      action));
}

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_WORKER_PROCESS_H_

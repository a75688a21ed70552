// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/grpc/local.h"

#include <pthread.h>

#include "runtime/shared_memory/socket.h"

namespace basin::client {

std::unique_ptr<LocalLink> LocalLink::Open(const std::string& name, SessionToken token,
                                           uint64_t features) {
  const absl::StatusOr<int> socket = ConnectLocal(name);
  if (!socket.ok()) return nullptr;
  return std::unique_ptr<LocalLink>(new LocalLink(*socket, token, features));
}

LocalLink::LocalLink(int socket, SessionToken token, uint64_t features)
    : token_(token), segments_(std::make_shared<Segments>(socket)) {
  segments_->TakeFeatures(features);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "basin-local");
    if (!segments_->Send({SegmentMessage::Kind::kToken, token_, 0}).ok()) return;
    const absl::StatusOr<SegmentMessage> answer = segments_->ReceiveOpening();
    if (!answer.ok() || answer->kind != SegmentMessage::Kind::kWelcome) return;
    bound_ = true;
    while (segments_->Receive().ok()) {
    }
  });
}

LocalLink::~LocalLink() {
  segments_->Close();
  thread_.join();
}

}  // namespace basin::client

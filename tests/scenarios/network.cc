// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/network.h"

#include <utility>

#include "protocol/round.h"

namespace basin::scenarios {

Link& Network::Connect(WorkerProcess* worker, AggregatorProcess* aggregator, uint32_t streams) {
  Link link;
  link.session = ++sessions_;
  link.token = MixChain(0x70ce5, link.session);
  link.worker = worker;
  link.aggregator = aggregator;
  link.streams.resize(streams);
  links_.push_back(std::move(link));
  return links_.back();
}

void Network::Request(Dial dial) {
  dial.number = ++numbers_;
  dials_.push_back(dial);
}

Link* Network::FindSession(aggregator::SessionId session) {
  for (Link& link : links_) {
    if (link.session == session) return &link;
  }
  return nullptr;
}

Link* Network::FindToken(SessionToken token) {
  for (Link& link : links_) {
    if (link.token == token) return &link;
  }
  return nullptr;
}

Stream* Network::FindStream(aggregator::StreamId id) {
  for (Link& link : links_) {
    for (Stream& stream : link.streams) {
      if (stream.id == id) return &stream;
    }
  }
  return nullptr;
}

Link* Network::OpenLinkOf(const WorkerProcess* worker) {
  for (Link& link : links_) {
    if (link.worker == worker && link.worker_open) return &link;
  }
  return nullptr;
}

void Network::SendUp(Link& link, ToAggregator message) {
  if (link.worker_open) link.up.push_back(Number(std::move(message)));
}

void Network::SendDown(Link& link, ToWorker message) {
  if (link.aggregator_open) link.down.push_back(Number(std::move(message)));
}

void Network::SendFrameUp(Link& link, uint32_t stream, std::variant<PushFrame, BlobFrame> frame) {
  if (!link.worker_open || stream >= link.streams.size() || !link.streams[stream].open) return;
  std::visit([&](auto& f) { link.streams[stream].up.push_back(Number(std::move(f))); }, frame);
}

void Network::SendFrameDown(Stream& stream, std::variant<ResultFrame, BlobFrame> frame) {
  std::visit([&](auto& f) { stream.down.push_back(Number(std::move(f))); }, frame);
}

Stream& Network::NewStream(Link& link, uint32_t stream) {
  link.streams[stream] = Stream{++streams_, false, {}, {}};
  return link.streams[stream];
}

void Network::ClearUp(Link& link) {
  link.up.clear();
  for (Stream& stream : link.streams) stream.up.clear();
}

void Network::ClearDown(Link& link) {
  link.down.clear();
  for (Stream& stream : link.streams) stream.down.clear();
}

void Network::CloseByWorker(Link& link) {
  if (!link.worker_open) return;
  link.worker_open = false;
  ClearDown(link);
  link.up.push_back(Number(Closed{}));
}

void Network::CloseByAggregator(Link& link) {
  if (!link.aggregator_open) return;
  link.aggregator_open = false;
  link.down.push_back(Number(Closed{}));
}

void Network::KillWorkerSide(Link& link) {
  ClearUp(link);
  CloseByWorker(link);
}

void Network::KillAggregatorSide(Link& link) {
  ClearUp(link);
  ClearDown(link);
  CloseByAggregator(link);
}

void Network::Break(Link& link) {
  ClearUp(link);
  ClearDown(link);
  link.worker_open = link.aggregator_open = false;
}

}  // namespace basin::scenarios

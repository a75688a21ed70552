// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/worker_port.h"

namespace basin::aggregator {

ServerOptions OptionsOfWorkerPort(const Settings& settings, const std::string& version,
                                  const Descriptors& descriptors, PortGuard& guard,
                                  Refusals& refusals) {
  ServerOptions options;
  options.version = version;
  options.address = settings.grpc_address;
  options.tls = guard.grpc_certificates();
  options.gatekeeper = guard.gatekeeper();
  options.grpc = settings.grpc;
  options.grpc.quota_bytes = QuotaFor(settings.core.memory_bytes);
  options.expanding_bytes = ExpandingFor(settings.core.memory_bytes);
  options.kept_descriptors = kKeptDescriptors;
  options.most_newcomers = descriptors.newcomers();
  options.report = [&refusals](const std::string& address, const std::string& kind,
                               const std::string& what) { refusals.OfPeer(address, kind, what); };
  return options;
}

}  // namespace basin::aggregator

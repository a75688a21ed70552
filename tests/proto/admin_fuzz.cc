// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The checks of the admin requests: the first byte chooses the request. An accepted request has the
// magic number, the version, and names that obey the rules.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "basin/v1/admin.pb.h"
#include "proto/wire/admin.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"
#include "protocol/version.h"
#include "tests/proto/admin_requests.h"
#include "tests/proto/quiet_protobuf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const basin::testing::QuietProtobuf quiet;
  basin::testing::AdminRequests::VisitNumber(
      data[0] % basin::testing::AdminRequests::kCount, [&](auto request) {
        if (!request.ParseFromArray(data + 1, static_cast<int>(size - 1))) return;
        if (!basin::wire::Check(request).ok()) return;
        if (request.header().magic() != basin::kMagic) std::abort();
        if (request.header().protocol_version() != basin::kProtocolVersion) std::abort();
        for (const char* name : {"job", "worker"}) {
          const auto* field = request.GetDescriptor()->FindFieldByName(name);
          if (field == nullptr) continue;
          const std::string value = request.GetReflection()->GetString(request, field);
          if (!value.empty() && !basin::CheckJobName(value).ok()) std::abort();
        }
      });
  return 0;
}

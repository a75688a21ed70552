// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/auth/gatekeeper.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

// More of a job's name, which was not checked, is not logged.
constexpr size_t kMostJobBytes = 128;

// "observer or admin": those that may make the call.
std::string RolesFor(Rpc rpc) {
  std::string roles;
  for (int i = 0; i < kRoles; ++i) {
    const auto role = static_cast<CallerRole>(i);
    if (Allows(role, rpc)) absl::StrAppend(&roles, roles.empty() ? "" : " or ", RoleName(role));
  }
  return roles;
}

// `grant`: of the credential, which is therefore known here; null: there is none.
absl::Status RefusalOf(Decision decision, Rpc rpc, const Grant* grant) {
  switch (decision) {
    case Decision::kAllowed:
      return absl::OkStatus();
    case Decision::kNoCredential:
      return absl::UnauthenticatedError(
          "This aggregator requires a token, or a certificate that was granted something. Set "
          "BASIN_TOKEN_FILE to the file that has the token.");
    case Decision::kUnknownCredential:
      return absl::UnauthenticatedError(
          "The token or certificate is not valid here. Ask the operator of the aggregator for a "
          "valid one.");
    case Decision::kWrongRole:
      return absl::PermissionDeniedError(absl::StrCat(
          "The token or certificate has the role ", RoleName(grant->role), ", and ", RpcName(rpc),
          " needs the role ", RolesFor(rpc),
          ". Roles are set in the file of grants of the aggregator (auth.file): present a token "
          "that has this role there, or ask the operator of the aggregator for one."));
    case Decision::kWrongJob:
      if (ScopeOf(rpc) == Scope::kService) {
        return absl::PermissionDeniedError(absl::StrCat(
            "The token or certificate has the role ", RoleName(grant->role),
            " for some jobs only, and ", RpcName(rpc),
            " is about all of them. Jobs are set in the file of grants of the aggregator "
            "(auth.file): present a token that is for the jobs * there, or ask the operator of the "
            "aggregator for one."));
      }
      return absl::PermissionDeniedError(
          "The token or certificate does not allow this. Check the name of the job, and ask the "
          "operator of the aggregator.");
  }
  return absl::PermissionDeniedError("");
}

}  // namespace

void Gatekeeper::Replace(Grants grants) {
  auto fresh = std::make_shared<const Grants>(std::move(grants));
  MutexLock lock(mutex_);
  grants_.swap(fresh);
}

std::shared_ptr<const Grants> Gatekeeper::grants() const {
  MutexLock lock(mutex_);
  return grants_;
}

bool Gatekeeper::MayCall(const Credentials& credentials, Rpc rpc, std::string_view job) const {
  const auto grants = this->grants();
  return grants == nullptr || grants->Check(credentials, rpc, job).decision == Decision::kAllowed;
}

Gatekeeper::Ruling Gatekeeper::Check(const Credentials& credentials, Rpc rpc, std::string_view job,
                                     std::string_view who) {
  const auto grants = this->grants();
  if (grants == nullptr) return {};
  const Grants::Answer answer = grants->Check(credentials, rpc, job);
  Ruling ruling;
  if (answer.grant != nullptr) ruling.grant = *answer.grant;
  if (answer.decision == Decision::kAllowed) return ruling;
  ++refused_[static_cast<size_t>(answer.decision)];
  const auto text = [](std::string_view view) {
    return absl::string_view(view.data(), view.size());
  };
  ruling.for_peer = RefusalOf(answer.decision, rpc, answer.grant);
  ruling.kind = absl::StrCat(RpcName(rpc), " ", DecisionName(answer.decision), " ",
                             ruling.grant.has_value() ? ruling.grant->name : "");
  ruling.for_operator = absl::StrCat(RpcName(rpc), who.empty() ? "" : " of ", text(who),
                                     who.empty() && !job.empty() ? " for job " : "",
                                     who.empty() ? PrintableText(job, kMostJobBytes) : "",
                                     " was refused (", DecisionName(answer.decision), ")");
  if (ruling.grant.has_value()) {
    absl::StrAppend(&ruling.for_operator, ": ", ruling.grant->name, " has role ",
                    RoleName(ruling.grant->role), " for jobs ", ruling.grant->jobs);
  }
  ruling.for_operator += ".";
  return ruling;
}

}  // namespace basin::aggregator

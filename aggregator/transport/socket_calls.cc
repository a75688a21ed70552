// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/socket_calls.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "grpc/grpc.h"
#include "grpc/support/alloc.h"
#include "nlohmann/json.hpp"

namespace basin::aggregator {
namespace {

using Json = nlohmann::json;

// Takes an answer of gRPC. Null if it is none.
Json Parsed(char* answer) {
  if (answer == nullptr) return nullptr;
  Json parsed = Json::parse(answer, nullptr, false);
  gpr_free(answer);
  return parsed.is_object() ? parsed : Json();
}

// A number, which is text in JSON for protobuf.
std::optional<int64_t> NumberAt(const Json& object, const char* name) {
  const auto found = object.find(name);
  int64_t number = 0;
  if (found == object.end() || !found->is_string()) return std::nullopt;
  if (!absl::SimpleAtoi(found->get_ref<const std::string&>(), &number)) return std::nullopt;
  return number;
}

// The elements of a list in an answer.
Json ListAt(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : Json::array();
}

// The object of this name.
Json ObjectAt(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? *found : Json::object();
}

// Calls `visit` with the elements of a list that gRPC gives in parts; `number` is that of one.
template <typename Ask, typename Number, typename Visit>
bool VisitAll(const char* list, const Ask& ask, const Number& number, const Visit& visit) {
  for (int64_t next = 0;;) {
    const Json part = Parsed(ask(next));
    if (part.is_null()) return false;
    const Json elements = ListAt(part, list);
    for (const Json& element : elements) {
      const std::optional<int64_t> one = number(element);
      if (!one.has_value()) return false;
      if (visit(element, *one)) return true;
      next = *one + 1;
    }
    const auto end = part.find("end");
    if (elements.empty() || (end != part.end() && *end == true)) return false;
  }
}

}  // namespace

std::optional<int64_t> SocketOf(const std::string& peer) {
  std::optional<int64_t> found;
  const auto server_number = [](const Json& server) {
    return NumberAt(ObjectAt(server, "ref"), "serverId");
  };
  const auto socket_number = [](const Json& socket) { return NumberAt(socket, "socketId"); };
  const auto is_peers = [&](const Json& socket, int64_t number) {
    const auto name = socket.find("name");
    if (name == socket.end() || !name->is_string()) return false;
    // The name ends with that of the peer.
    const auto& text = name->get_ref<const std::string&>();
    if (text.size() < peer.size()) return false;
    const size_t before = text.size() - peer.size();
    if (text.compare(before, peer.size(), peer) != 0) return false;
    if (before > 0 && text[before - 1] != ' ') return false;
    found = number;
    return true;
  };
  VisitAll(
      "server", [](int64_t next) { return grpc_channelz_get_servers(next); }, server_number,
      [&](const Json&, int64_t server) {
        return VisitAll(
            "socketRef",
            [&](int64_t next) { return grpc_channelz_get_server_sockets(server, next, 0); },
            socket_number, is_peers);
      });
  return found;
}

std::optional<uint64_t> CallsBegunOn(int64_t socket) {
  const Json answer = Parsed(grpc_channelz_get_socket(socket));
  if (answer.is_null()) return std::nullopt;
  const Json data = ObjectAt(ObjectAt(answer, "socket"), "data");
  // Left out while it is zero.
  const std::optional<int64_t> begun = NumberAt(data, "streamsStarted");
  if (!begun.has_value() || *begun < 0) return std::nullopt;
  return static_cast<uint64_t>(*begun);
}

}  // namespace basin::aggregator

// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/payload.h"

#include <algorithm>
#include <cstring>

namespace basin::client {
namespace {

template <typename F>
void ForEachPiece(const PayloadPart& part, F&& take) {
  uint64_t skip = part.offset;
  uint64_t left = part.size;
  for (const std::string_view piece : part.owner->pieces()) {
    if (left == 0) return;
    if (skip >= piece.size()) {
      skip -= piece.size();
      continue;
    }
    const std::string_view taken = piece.substr(skip, left);
    take(taken);
    skip = 0;
    left -= taken.size();
  }
}

}  // namespace

void AppendPieces(const PayloadPart& part, wire::Slices& pieces) {
  ForEachPiece(part, [&](std::string_view piece) { pieces.push_back(piece); });
}

char* CopyBytes(const PayloadPart& part, char* to) {
  ForEachPiece(part, [&](std::string_view piece) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  });
  return to;
}

void PayloadParts::Append(const PayloadPart& part) {
  if (part.size == 0) return;
  if (!parts_.empty()) {
    PayloadPart& last = parts_.back();
    if (last.owner == part.owner && last.offset + last.size == part.offset) {
      last.size += part.size;
      return;
    }
  }
  parts_.push_back(part);
}

uint64_t PayloadParts::bytes() const {
  uint64_t bytes = 0;
  for (const PayloadPart& part : parts_) bytes += part.size;
  return bytes;
}

wire::Slices PayloadParts::Pieces() const {
  wire::Slices pieces;
  for (const PayloadPart& part : parts_) AppendPieces(part, pieces);
  return pieces;
}

}  // namespace basin::client

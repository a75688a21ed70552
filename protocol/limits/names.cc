// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/limits/names.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "protocol/limits/limits.h"

namespace basin {
namespace {

// One character of UTF-8. `bytes` is its length, 0 if the text does not begin with a valid one.
struct Character {
  uint32_t code = 0;
  size_t bytes = 0;
};

// Decodes the first character of a text that is not empty. Overlong forms, surrogates and codes
// beyond U+10FFFF are not valid (Unicode 15, table 3-7).
Character FirstCharacter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return {};
  uint32_t code = lead & (0x7f >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[size] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, size};
}

bool IsPrintableCode(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) return false;  // Control characters.
  if (code == 0xad || code == 0xfeff) return false;                 // Invisible marks.
  if (code >= 0x200b && code <= 0x200f) return false;    // Zero width, and marks of direction.
  if (code >= 0x2028 && code <= 0x202e) return false;    // Separators of lines; direction.
  if (code >= 0x2060 && code <= 0x206f) return false;    // Invisible operators; direction.
  if (code >= 0xfff9 && code <= 0xfffb) return false;    // Interlinear annotation.
  if (code == 0x061c) return false;                      // Direction.
  if (code >= 0xe0000 && code <= 0xe0fff) return false;  // Tags.
  return (code & 0xfffe) != 0xfffe && !(code >= 0xfdd0 && code <= 0xfdef);  // Noncharacters.
}

bool IsLabel(std::string_view text) {
  const auto ends = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); };
  return !text.empty() && text.size() <= kMaxLabelBytes && ends(text.front()) &&
         ends(text.back()) && std::all_of(text.begin(), text.end(), [&](char c) {
           return ends(c) || c == '-' || c == '.';
         });
}

absl::Status Refuse(const char* what, std::string_view text, const char* rule) {
  return absl::InvalidArgumentError(absl::StrCat(what, " ", QuoteForError(text), ": ", rule));
}

}  // namespace

absl::Status CheckJobName(std::string_view name) {
  const size_t slash = name.find('/');
  const bool ok = slash == std::string_view::npos
                      ? IsLabel(name)
                      : IsLabel(name.substr(0, slash)) && IsLabel(name.substr(slash + 1));
  return ok ? absl::OkStatus()
            : Refuse("job name", name,
                     "use 1 to 63 of a-z, 0-9, '-' and '.', beginning and ending with a letter or "
                     "digit, or two such names joined by one '/'");
}

absl::Status CheckWorkerId(std::string_view id) {
  return IsLabel(id) ? absl::OkStatus()
                     : Refuse("worker id", id,
                              "use 1 to 63 of a-z, 0-9, '-' and '.', beginning and ending with a "
                              "letter or digit");
}

absl::Status CheckRunId(std::string_view id) {
  const bool ok = id.empty() || (id.size() <= kMaxRunIdBytes && absl::ascii_isalnum(id.front()) &&
                                 std::all_of(id.begin(), id.end(), [](char c) {
                                   return absl::ascii_isalnum(c) || c == '.' || c == '_' ||
                                          c == ':' || c == '-';
                                 }));
  return ok ? absl::OkStatus()
            : Refuse("run id", id,
                     "use 1 to 128 of A-Z, a-z, 0-9, '.', '_', ':' and '-', beginning with a "
                     "letter or digit");
}

absl::Status CheckName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && IsPrintable(name)
             ? absl::OkStatus()
             : Refuse("name", name, "use 1 to 256 bytes of printable UTF-8");
}

bool IsPrintable(std::string_view text) {
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    if (character.bytes == 0 || !IsPrintableCode(character.code)) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

std::string PrintableText(std::string_view text, size_t max_bytes) {
  std::string out;
  out.reserve(std::min(text.size(), max_bytes));
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    const bool keep = character.bytes != 0 && IsPrintableCode(character.code);
    const size_t taken = character.bytes == 0 ? 1 : character.bytes;
    const std::string_view shown = keep ? text.substr(0, taken) : std::string_view("?");
    if (out.size() + shown.size() > max_bytes) break;
    out.append(shown);
    text.remove_prefix(taken);
  }
  return out;
}

std::string QuoteForError(std::string_view text) {
  constexpr size_t kShownBytes = 64;
  const std::string_view shown = text.substr(0, kShownBytes);
  return absl::StrCat(
      "\"", absl::CHexEscape(absl::string_view(shown.data(), shown.size())), "\"",
      shown.size() < text.size() ? absl::StrCat("... (", text.size(), " bytes)") : std::string());
}

}  // namespace basin

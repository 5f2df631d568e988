// SPDX-License-Identifier: Apache-2.0
#include "hone/text/unicode/utf8.h"

#include <algorithm>
#include <cstdint>

#include "hone/text/tokenizer.h"

namespace hone::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What a lead byte implies: the length, and the range of the second byte (Unicode 15, table 3-7).
struct Lead {
  int bytes = 0;
  std::uint8_t low = 0x80, high = 0xBF;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte < 0xF0) {
    return {3, static_cast<std::uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<std::uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte < 0xF5) {
    return {4, static_cast<std::uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<std::uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0};
}

// The number of bytes at the start of `text` that are consistent with its lead byte, at most the
// length it implies.
int count_agreeing(std::string_view text, const Lead& lead) {
  const int limit = std::min(lead.bytes, static_cast<int>(std::min<std::size_t>(text.size(), 4)));
  int count = std::min(limit, 1);
  while (count > 0 && count < limit) {
    const auto byte = static_cast<std::uint8_t>(text[count]);
    const bool second = count == 1;
    if (byte < (second ? lead.low : 0x80) || byte > (second ? lead.high : 0xBF)) break;
    ++count;
  }
  return count;
}

}  // namespace

CodePoint decode_utf8(std::string_view text) {
  if (text.empty()) return {};
  const auto first = static_cast<std::uint8_t>(text[0]);
  if (first < 0x80) return {first, 1};
  const Lead lead = lead_of(first);
  if (lead.bytes == 0 || count_agreeing(text, lead) < lead.bytes) return {};
  char32_t value = first & (0x7Fu >> lead.bytes);
  for (int i = 1; i < lead.bytes; ++i) {
    value = (value << 6) | (static_cast<std::uint8_t>(text[i]) & 0x3Fu);
  }
  return {value, lead.bytes};
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&out](char32_t bits) { out.push_back(static_cast<char>(bits)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | (code_point >> 12));
    } else {
      put(0xF0 | (code_point >> 18));
      put(0x80 | ((code_point >> 12) & 0x3F));
    }
    put(0x80 | ((code_point >> 6) & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t position = 0;
  while (position < text.size()) {
    if (static_cast<std::uint8_t>(text[position]) < 0x80) {
      ++position;
      continue;
    }
    const int bytes = decode_utf8(text.substr(position, 4)).bytes;
    if (bytes == 0) break;
    position += static_cast<std::size_t>(bytes);
  }
  return position;
}

std::size_t invalid_utf8_prefix(std::string_view text) {
  if (text.empty()) return 0;
  const Lead lead = lead_of(static_cast<std::uint8_t>(text[0]));
  if (lead.bytes == 0) return 1;
  const int agreeing = count_agreeing(text, lead);
  const bool cut_off = static_cast<std::size_t>(agreeing) == text.size();
  return cut_off && agreeing < lead.bytes ? 0 : static_cast<std::size_t>(agreeing);
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string Utf8Stream::push(std::string_view bytes) {
  held_.append(bytes);
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const std::size_t valid = valid_utf8_prefix(rest);
    out.append(rest.substr(0, valid));
    rest.remove_prefix(valid);
    const std::size_t invalid = invalid_utf8_prefix(rest);
    if (invalid == 0) break;
    out.append(kReplacement);
    rest.remove_prefix(invalid);
  }
  held_ = std::string(rest);
  return out;
}

std::string Utf8Stream::finish() {
  std::string out(held_.empty() ? std::string_view() : kReplacement);
  held_.clear();
  return out;
}

}  // namespace hone::text

// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/event_file.h"

#include <bit>
#include <cstring>
#include <span>

#include "hone/core/check.h"
#include "hone/core/file/crc32c.h"

namespace hone::trainer {
namespace {

// CRCs are masked, because a CRC over data that contains its own CRC would be weak.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8u;
}

template <class T>
std::string little_endian(T value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::uint64_t read_u64(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Protocol buffer fields: the key is number·8 + wire type (0 varint, 1 fixed 64, 2 bytes, 5 fixed
// 32).
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string bytes_field(std::uint64_t number, std::string_view bytes) {
  return concat(varint(number << 3 | 2), varint(bytes.size()), bytes);
}

// Event: wall_time = 1 (double), step = 2 (int64).
std::string event_begin(double wall_time, Index step) {
  return concat(varint(1 << 3 | 1), little_endian(std::bit_cast<std::uint64_t>(wall_time)),
                varint(2 << 3 | 0), varint(static_cast<std::uint64_t>(step)));
}

std::string record(std::string_view event) {
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  return concat(length, little_endian(masked_crc(length)), event, little_endian(masked_crc(event)));
}

// The bytes of the record that `file` begins with; none when it is torn or damaged.
std::string_view first_record(std::string_view file) {
  constexpr std::size_t kHead = 12, kTail = 4;
  if (file.size() < kHead + kTail) return {};
  const std::uint64_t length = read_u64(file);
  if (file.substr(8, 4) != little_endian(masked_crc(file.substr(0, 8)))) return {};
  if (length > file.size() - kHead - kTail) return {};
  const std::string_view event = file.substr(kHead, length);
  if (file.substr(kHead + length, kTail) != little_endian(masked_crc(event))) return {};
  return file.substr(0, kHead + length + kTail);
}

}  // namespace

std::string first_event(double wall_time) {
  // file_version = 3
  return record(concat(event_begin(wall_time, 0), bytes_field(3, "brain.Event:2")));
}

std::string event_of(const MetricsRow& row, double wall_time) {
  // Summary: value = 1; its Value: tag = 1, simple_value = 2 (float).
  std::string summary;
  const auto add = [&summary](std::string_view tag, double value) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    summary += bytes_field(1, concat(bytes_field(1, tag), varint(2 << 3 | 5), little_endian(bits)));
  };
  for (const MetricsColumn& column : metrics_columns()) {
    if (const auto value = column.of(row)) add(column.tag, *value);
  }
  return record(concat(event_begin(wall_time, row.step), bytes_field(5, summary)));
}

KeptEvents keep_events(std::string_view file, std::span<const MetricsRow> rows) {
  // After a header of 12 bytes, an event begins as event_begin() writes it, with any time.
  constexpr std::size_t kStepAt = 12 + 9;
  KeptEvents kept;
  for (std::size_t i = 0; i <= rows.size(); ++i) {
    const std::string_view next = first_record(file.substr(kept.bytes.size()));
    const std::string want = event_begin(0, i == 0 ? 0 : rows[i - 1].step).substr(9);
    if (next.size() < kStepAt || !next.substr(kStepAt).starts_with(want)) break;
    kept = {file.substr(0, kept.bytes.size() + next.size()), i};
  }
  return kept;
}

}  // namespace hone::trainer

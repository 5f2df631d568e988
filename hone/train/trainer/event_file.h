// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hone/train/trainer/metrics_log.h"

namespace hone::trainer {

// TensorBoard's event file: records of
//   u64 length | u32 masked CRC-32C of it | bytes | u32 masked CRC-32C of them   (little-endian)
// whose bytes are a protocol buffer of type tensorflow.Event.

// The record every file begins with. Times are seconds since 1970.
std::string first_event(double wall_time);
// One record with all the numbers of a row as scalars: train/loss, train/lr, train/grad_norm,
// train/tokens_per_s, validation/loss, validation/bits_per_byte. Scalars are f32, as the format
// requires.
std::string event_of(const MetricsRow& row, double wall_time);

// The leading part of a file that consists of the first record and of complete records for the
// first of `rows`, in order. Empty if it does not begin like an event file.
struct KeptEvents {
  std::string_view bytes;
  std::size_t rows = 0;
};
KeptEvents keep_events(std::string_view file, std::span<const MetricsRow> rows);

}  // namespace hone::trainer

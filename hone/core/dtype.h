// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "hone/core/index.h"

namespace hone {

enum class Dtype : std::uint8_t {
  Float32,
  Float16,
  BFloat16,
  Float64,
  Int8,
  UInt8,
  Int32,
  Int64,
  Bool,
  Float8E4M3,
  Float8E5M2,
};

Index bytes_of(Dtype dtype);

// Lower-case name as used on command lines and in messages: "f32", "bf16", …
std::string_view name_of(Dtype dtype);

constexpr bool is_floating(Dtype dtype) {
  return dtype <= Dtype::Float64 || dtype >= Dtype::Float8E4M3;
}

}  // namespace hone

// SPDX-License-Identifier: Apache-2.0
#include "hone/core/dtype.h"

#include <array>

namespace hone {
namespace {

struct DtypeRow {
  std::string_view name;
  Index bytes;
};

constexpr std::array<DtypeRow, 11> kDtypes{{
    {"f32", 4},
    {"f16", 2},
    {"bf16", 2},
    {"f64", 8},
    {"i8", 1},
    {"u8", 1},
    {"i32", 4},
    {"i64", 8},
    {"bool", 1},
    {"f8_e4m3", 1},
    {"f8_e5m2", 1},
}};

}  // namespace

Index bytes_of(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].bytes; }
std::string_view name_of(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].name; }

}  // namespace hone

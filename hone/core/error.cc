// SPDX-License-Identifier: Apache-2.0
#include "hone/core/error.h"

#include <array>

namespace hone {
namespace {

struct CategoryRow {
  std::string_view name;
  int exit_status;
};

constexpr std::array<CategoryRow, 9> kCategories{{
    {"invalid argument", 2},
    {"not found", 3},
    {"corrupt file", 3},
    {"unsupported", 4},
    {"input/output", 1},
    {"resource", 1},
    {"device", 1},
    {"cancelled", 130},
    {"internal", 1},
}};

}  // namespace

std::string_view name_of(ErrorCategory category) {
  return kCategories[static_cast<std::size_t>(category)].name;
}

int exit_status(ErrorCategory category) {
  return kCategories[static_cast<std::size_t>(category)].exit_status;
}

}  // namespace hone

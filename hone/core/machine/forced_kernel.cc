// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>

#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"

// In its own file, so that code that needs only this function links without Highway.
namespace hone {
namespace {

constexpr std::size_t kMostVariants = 6;

// Whatever HONE_FORCE_KERNEL may ask for. Every operation chooses among its variants by itself and
// refuses those that the processor lacks.
struct ForcibleOp {
  std::string_view name;
  std::array<std::string_view, kMostVariants> variants;  // the rest is empty
};

constexpr std::array<std::string_view, kMostVariants> kFloatGemm{"highway", "plain"};
constexpr std::array<std::string_view, kMostVariants> kIntegerGemm{
    "amx", "avx512vnni", "avxvnni", "avx512", "avx2", "plain"};
constexpr std::array<ForcibleOp, 8> kOps{{
    {"gemm_f32", kFloatGemm},
    {"gemm_f16", kFloatGemm},
    {"gemm_bf16", kFloatGemm},
    {"gemm_q8", kIntegerGemm},
    {"gemm_q8_f32", kFloatGemm},
    {"gemm_q4", kIntegerGemm},
    {"gemm_q4_f32", kFloatGemm},
    {"multi_tensor", {"ref", "auto", "struct_small", "struct_large", "table"}},
}};

void append_word(std::string& list, std::string_view word) {
  if (!word.empty()) list += concat(list.empty() ? "" : " ", word);
}

// The variant in one "op:variant", once it is known that there is one.
std::string_view checked_variant(std::string_view item) {
  const std::size_t colon = std::min(item.find(':'), item.size());
  const auto op = std::ranges::find(kOps, item.substr(0, colon), &ForcibleOp::name);
  std::string known;
  if (op == kOps.end()) {
    for (const ForcibleOp& each : kOps) append_word(known, each.name);
    fail_argument("HONE_FORCE_KERNEL", concat("op:variant with one of the operations ", known),
                  item);
  }
  const std::string_view variant = item.substr(std::min(colon + 1, item.size()));
  if (variant.empty() || std::ranges::find(op->variants, variant) == op->variants.end()) {
    for (const std::string_view each : op->variants) append_word(known, each);
    fail_argument("HONE_FORCE_KERNEL", concat(op->name, ": one of ", known), item);
  }
  return variant;
}

}  // namespace

std::string forced_kernel(std::string_view op) {
  const char* value = std::getenv("HONE_FORCE_KERNEL");
  std::istringstream list(value == nullptr ? "" : value);
  std::string forced;
  for (std::string item; std::getline(list, item, ',');) {
    const std::string_view variant = checked_variant(item);
    if (forced.empty() && item.starts_with(op) && item[op.size()] == ':') forced = variant;
  }
  return forced;
}

void check_forced_kernels() { (void)forced_kernel(kOps.front().name); }

}  // namespace hone

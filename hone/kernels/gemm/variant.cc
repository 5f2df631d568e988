// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/gemm/variant.h"

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/cpu_info.h"
#include "hone/kernels/gemm/dense/float_tile.h"
#include "hone/kernels/gemm/integer/int_tile.h"

namespace hone::kernels {
namespace {

std::string_view op_name(PanelKind kind, Act act) {
  switch (kind) {
    case PanelKind::F32:
      return "gemm_f32";
    case PanelKind::F16:
      return "gemm_f16";
    case PanelKind::BF16:
      return "gemm_bf16";
    case PanelKind::Code8:
      return act == Act::Int8 ? "gemm_q8" : "gemm_q8_f32";
    case PanelKind::Code4:
      return act == Act::Int8 ? "gemm_q4" : "gemm_q4_f32";
  }
  fail(ErrorCategory::Internal, "gemm", "The panel has an unknown kind.");
}

struct Candidate {
  GemmVariant variant;
  bool enabled;
};

#if defined(__x86_64__)
void add_int8_kernels(PanelKind kind, std::vector<Candidate>& list) {
  struct Row {
    Isa isa;
    TileFunction tile8, tile4;
  };
  // Best first. 256 bits with VNNI are faster than 512 bits without.
  constexpr std::array<Row, 4> kRows{{
      {Isa::Avx512Vnni, int_tile8_avx512vnni, int_tile4_avx512vnni},
      {Isa::AvxVnni, int_tile8_avxvnni, int_tile4_avxvnni},
      {Isa::Avx512, int_tile8_avx512, int_tile4_avx512},
      {Isa::Avx2, int_tile8_avx2, int_tile4_avx2},
  }};
  for (const Row& row : kRows) {
    const TileFunction tile = kind == PanelKind::Code8 ? row.tile8 : row.tile4;
    list.push_back({{name_of(row.isa), tile, true}, isa_enabled(row.isa)});
  }
}
#else
void add_int8_kernels(PanelKind, std::vector<Candidate>&) {}
#endif

// Best first. The last one is always enabled.
std::vector<Candidate> candidates(PanelKind kind, Act act) {
  std::vector<Candidate> list;
  const bool codes = kind == PanelKind::Code8 || kind == PanelKind::Code4;
  if (act == Act::Int8) {
    add_int8_kernels(kind, list);
    list.push_back({{"plain", plain_int8_tile, false}, true});
  } else {
    list.push_back(
        {{"highway", codes ? code_float_tile(kind) : dense_float_tile(kind), true}, true});
    list.push_back({{"plain", plain_float_tile, false}, true});
  }
  return list;
}

GemmVariant best_variant(PanelKind kind, Act act) {
  for (const Candidate& candidate : candidates(kind, act)) {
    if (candidate.enabled) return candidate.variant;
  }
  fail(ErrorCategory::Internal, "gemm", "There is no kernel.");
}

GemmVariant forced_variant(PanelKind kind, Act act, std::string_view name) {
  for (const Candidate& candidate : candidates(kind, act)) {
    if (candidate.variant.name == name && candidate.enabled) return candidate.variant;
  }
  fail_unsupported(op_name(kind, act), concat("a processor (and --force-isa) with ", name),
                   cpu_info().model);
}

// Cached, because detecting the processor is slow under some hypervisors.
GemmVariant cached_best_variant(PanelKind kind, Act act) {
  constexpr std::size_t kKinds = 5;
  static const std::array<GemmVariant, 2 * kKinds> best = [] {
    std::array<GemmVariant, 2 * kKinds> table{};
    for (std::size_t i = 0; i < kKinds; ++i) {
      table[i] = best_variant(static_cast<PanelKind>(i), Act::Float32);
      const auto code =
          static_cast<PanelKind>(i) == PanelKind::Code4 ? PanelKind::Code4 : PanelKind::Code8;
      table[kKinds + i] = best_variant(code, Act::Int8);
    }
    return table;
  }();
  return best[(act == Act::Int8 ? kKinds : 0) + static_cast<std::size_t>(kind)];
}

}  // namespace

GemmVariant choose_variant(PanelKind kind, Act act) {
  if (std::getenv("HONE_FORCE_KERNEL") != nullptr) {
    const std::string forced = forced_kernel(op_name(kind, act));
    if (!forced.empty()) return forced_variant(kind, act, forced);
  }
  return cached_best_variant(kind, act);
}

}  // namespace hone::kernels

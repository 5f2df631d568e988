// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/gemm/variant.h"

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
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
    case PanelKind::Min5:
    case PanelKind::Half6:
      return act == Act::Int8 ? "gemm_q8" : "gemm_q8_f32";
    case PanelKind::Code4:
    case PanelKind::Min4:
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
    IntTiles tiles;
  };
  const bool is_amd = cpu_info().amd_family != 0;
  // Best first. 256 bits with VNNI are faster than 512 bits without.
  const std::array<Row, 5> rows{{
      {Isa::Amx, kIntTilesAmx},
      {Isa::Avx512Vnni, is_amd ? kIntTilesAvx512Vnni : kIntTilesAvx512VnniL2},
      {Isa::AvxVnni, kIntTilesAvxVnni},
      {Isa::Avx512, kIntTilesAvx512},
      {Isa::Avx2, is_amd ? kIntTilesAvx2 : kIntTilesAvx2L2},
  }};
  for (const Row& row : rows) {
    const auto tile = static_cast<std::size_t>(kind) - static_cast<std::size_t>(PanelKind::Code8);
    const bool is_built = row.tiles[tile] != nullptr;
    list.push_back({{name_of(row.isa), row.tiles[tile], true}, is_built && isa_enabled(row.isa)});
  }
}
#else
void add_int8_kernels(PanelKind, std::vector<Candidate>&) {}
#endif

// Best first. The last one is always enabled.
std::vector<Candidate> candidates(PanelKind kind, Act act) {
  std::vector<Candidate> list;
  if (act == Act::Int8) {
    add_int8_kernels(kind, list);
    list.push_back({{"plain", plain_int8_tile, false}, true});
  } else {
    list.push_back(
        {{"highway", is_code(kind) ? code_float_tile(kind) : dense_float_tile(kind), true}, true});
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
                   concat(name_of(best_isa()), " on ", cpu_info().model));
}

// Cached, because detecting the processor is slow under some hypervisors.
GemmVariant cached_best_variant(PanelKind kind, Act act) {
  constexpr auto kKinds = static_cast<std::size_t>(PanelKind::Half6) + 1;
  static const std::array<GemmVariant, 2 * kKinds> best = [] {
    std::array<GemmVariant, 2 * kKinds> table{};
    for (std::size_t i = 0; i < kKinds; ++i) {
      table[i] = best_variant(static_cast<PanelKind>(i), Act::Float32);
      if (is_code(static_cast<PanelKind>(i)))
        table[kKinds + i] = best_variant(static_cast<PanelKind>(i), Act::Int8);
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

bool reads_panel_by_panel(PanelKind kind) {
  constexpr int kZen5 = 26;
  const int family = cpu_info().amd_family;
  return family >= kZen5 || (family == 0 && has_factors(kind));
}

}  // namespace hone::kernels

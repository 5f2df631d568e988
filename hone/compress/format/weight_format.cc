// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/format/weight_format.h"

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone::compress {

WeightFormat::WeightFormat(std::string name, std::vector<float> levels, std::uint8_t zero_code)
    : name_(std::move(name)), levels_(std::move(levels)), zero_code_(zero_code) {
  for (std::size_t i = 1; i < levels_.size(); ++i) {
    is_uniform_ = is_uniform_ && levels_[i] == levels_[i - 1] + 1;
    middles_.push_back((levels_[i] + levels_[i - 1]) / 2);
  }
}

std::uint8_t WeightFormat::nearest_of_table(float x) const {
  return static_cast<std::uint8_t>(std::ranges::upper_bound(middles_, x) - middles_.begin());
}

std::shared_ptr<const WeightFormat> parse_weight_format(std::string_view name) {
  if (auto format = find_gguf_format(name)) return format;
  try {
    const QuantSpec spec = parse_quant_spec(name);
    if (spec.kind != CodeKind::Float) return make_canonical_format(spec);
  } catch (const Error&) {  // Its message lists canonical codes only.
  }
  fail_argument("quantize", weight_format_forms(), name);
}

std::string weight_format_forms() {
  return concat("int<2-8> or log<2-8>:<row|tensor|gN>[:sym|:asym][:f32|:f16], N a multiple of 16, ",
                join_names(gguf_format_names()));
}

}  // namespace hone::compress

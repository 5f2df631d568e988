// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/family/family.h"

#include <vector>

#include "hone/core/check.h"

namespace hone::model_io {
namespace {

std::string list_names(std::string_view Family::*name) {
  std::vector<std::string_view> names;
  for (const Family& family : families()) {
    if (names.empty() || names.back() != family.*name) names.push_back(family.*name);
  }
  std::string out(names.front());
  for (std::size_t i = 1; i < names.size(); ++i)
    out += concat(i + 1 == names.size() ? " or " : ", ", names[i]);
  return out;
}

}  // namespace

const Family& family_of(const Architecture& architecture) {
  for (const Family& family : families()) {
    if (family.name == architecture.family) return family;
  }
  fail(ErrorCategory::Internal, "family", "a family of the table", architecture.family);
}

const Family* find_family(std::string_view model_class, std::string_view model_type) {
  for (const Family& family : families()) {
    if (model_class.empty() ? family.name == model_type : family.model_class == model_class)
      return &family;
  }
  return nullptr;
}

std::string list_classes() { return list_names(&Family::model_class); }
std::string list_gguf_architectures() { return list_names(&Family::gguf); }

void apply_family(const Family& family, FileFormat format, Architecture& a) {
  a.family = family.name;
  a.norm = family.norm;
  a.norm_offset = norm_offset_in(family, format);
  a.pre_norms = family.pre_norms;
  a.post_norms = family.post_norms;
  a.mlp = family.mlp;
  a.qk_norm = family.qk_norm;
  a.attention_bias = family.attention_bias == BiasRule::Always;
  a.output_bias = family.output_bias;
  a.mlp_bias = family.mlp_bias == BiasRule::Always;
  a.learned_positions = family.learned_positions;
  a.rope.pairing = pairing_in(family, format);
}

double norm_offset_in(const Family& family, FileFormat format) {
  return format == FileFormat::HuggingFace ? family.hugging_face_norm_offset : 0;
}

RopePairing pairing_in(const Family& family, FileFormat format) {
  return format == FileFormat::HuggingFace ? RopePairing::HalfSplit : family.gguf_pairing;
}

std::string first_gguf_name(const Family& family, std::string_view part) {
  for (const TensorRow& row : family.layer) {
    if (row.parts[0] == part) return concat("blk.0.", row.gguf);
  }
  return {};
}

}  // namespace hone::model_io

// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <unordered_map>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/progress.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/llama2c/layout.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/model_io/write_plan.h"

namespace hone::model_io {
namespace {

void check_expressible(const Architecture& a, const std::string& where) {
  const auto need = [&](bool holds, std::string_view expected, std::string_view got) {
    if (!holds) fail_unsupported(where, concat(expected, " for llama2.c"), got);
  };
  need(a.has_default_traits() && a.has_uniform_widths(), "a model of the llama family", a.family);
  need(!a.attention_bias && !a.mlp_bias, "no biases", "biases");
  need(a.heads * a.head_dim == a.hidden_size,
       concat("a head dimension of ", a.hidden_size, " / ", a.heads), concat(a.head_dim));
  need(a.rope.theta == kLlama2cTheta, concat("a rope base of ", kLlama2cTheta),
       concat(a.rope.theta));
  need(a.rope.scaling == RopeScaling::None && a.rope.frequency_divisors.empty(), "no rope scaling",
       "scaling");
  need(a.rope.rotary_dims == a.head_dim, concat(a.head_dim, " rotary dimensions"),
       concat(a.rope.rotary_dims));
  need(a.norm_eps == kLlama2cEps, concat("a norm epsilon of ", kLlama2cEps), concat(a.norm_eps));
}

// Writes the tables of cos and sin of position * frequency that the format's first readers used.
void write_tables(AtomicFile& file, const Architecture& a) {
  const std::vector<double> frequencies = rope_frequencies(a.rope).inverse;
  for (const bool sine : {false, true}) {
    for (Index position = 0; position < a.context; ++position) {
      for (const double frequency : frequencies) {
        const double angle = static_cast<double>(position) * frequency;
        const auto value = static_cast<float>(sine ? std::sin(angle) : std::cos(angle));
        file.write(std::as_bytes(std::span(&value, 1)));
      }
    }
  }
}

}  // namespace

WriteReport write_llama2c(const std::filesystem::path& path, const ModelSource& source) {
  const std::string where = path.string();
  const Architecture& a = source.architecture;
  refuse_factored(a, where);
  check_expressible(a, where);
  std::unordered_map<std::string_view, const NamedMatrix*> by_name;
  for (const NamedMatrix* tensor : order_tensors(source, where))
    by_name.emplace(tensor->name, tensor);

  AtomicFile file(path);
  const std::array<std::int32_t, 7> header{
      static_cast<std::int32_t>(a.hidden_size),
      static_cast<std::int32_t>(a.intermediate_size),
      static_cast<std::int32_t>(a.layers),
      static_cast<std::int32_t>(a.heads),
      static_cast<std::int32_t>(a.kv_heads),
      static_cast<std::int32_t>(a.tied_embeddings ? a.vocab_size : -a.vocab_size),
      static_cast<std::int32_t>(a.context)};
  file.write(std::as_bytes(std::span(header)));
  WriteReport report;
  Progress progress("writing", std::ssize(by_name), "tensors");
  const auto write_tensor = [&](const std::string& name) {
    const RowOrder order(a, name, RopePairing::Adjacent);
    encode_tensor(*by_name.at(name), order, StoreType::F32,
                  [&](std::span<const std::byte> bytes) { file.write(bytes); });
    progress.update(++report.tensors);
  };
  for (const Llama2cBlock& block : llama2c_blocks(a, true)) {
    for (Index layer = 0; layer < (block.per_layer ? a.layers : 1); ++layer)
      write_tensor(block.per_layer ? layer_name(layer, block.part) : block.part);
  }
  write_tables(file, a);
  if (!a.tied_embeddings) write_tensor("lm_head.weight");
  report.bytes = file.bytes_written();
  source.check_intact();
  file.commit();
  return report;
}

}  // namespace hone::model_io

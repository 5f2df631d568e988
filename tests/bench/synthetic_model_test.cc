// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/synthetic_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/format/quant_format.h"
#include "hone/model_io/model_file.h"
#include "tests/support/test_data.h"

namespace hone::bench {
namespace {

// The mean and the standard deviation of some rows.
std::pair<double, double> spread_of(const StoredMatrix& matrix) {
  std::vector<float> row(static_cast<std::size_t>(matrix.cols));
  double sum = 0, squares = 0, count = 0;
  for (Index at = 0; at < std::min<Index>(matrix.rows, 200); ++at) {
    decode_row(matrix, at, row);
    for (const double value : row) sum += value, squares += value * value, ++count;
  }
  return {sum / count, std::sqrt(squares / count - sum / count * (sum / count))};
}

TEST(SyntheticModel, blocks_of_every_type_have_the_spread_of_initialized_weights) {
  test::TemporaryFolder folder;
  for (const char* dtype : {"q8_0", "q4_0", "q4_k", "q5_k", "q6_k"}) {
    const auto file = synthetic_model("llama-160m", dtype, folder.path());
    const auto model = model_io::open_model_or_throw(file, {});
    for (const model_io::NamedMatrix& tensor : model->tensors()) {
      if (tensor.is_vector || tensor.name.find("layers.1.") == std::string::npos) continue;
      const auto [mean, deviation] = spread_of(tensor.matrix);
      EXPECT_NEAR(mean, 0, 2.5e-3) << dtype << " " << tensor.name;
      EXPECT_NEAR(deviation, 0.02, 2e-3) << dtype << " " << tensor.name;
    }
    std::filesystem::remove(file);
  }
  EXPECT_THROW(synthetic_model("llama-160m", "q3_k", folder.path()), Error);
  EXPECT_THROW(synthetic_model("llama-9b", "q4_k", folder.path()), Error);
}

// As llama.cpp chooses them for 12 layers: n / 8 = 1, so layer 0, layers 10 and 11, and 3, 6 and 9.
TEST(SyntheticModel, a_mixture_has_more_bits_where_llama_cpp_has) {
  test::TemporaryFolder folder;
  const auto model =
      model_io::open_model_or_throw(synthetic_model("llama-160m", "q4_k_m", folder.path()), {});
  std::map<std::string, GgufType> types;
  for (const model_io::NamedMatrix& tensor : model->tensors()) {
    types[tensor.name] = tensor.matrix.block_type;
  }
  for (int layer = 0; layer < 12; ++layer) {
    const bool is_wide = layer == 0 || layer >= 10 || layer % 3 == 0;
    const std::string name = "model.layers." + std::to_string(layer);
    const GgufType wide = is_wide ? GgufType::Q6_K : GgufType::Q4_K;
    EXPECT_EQ(types.at(name + ".self_attn.v_proj.weight"), wide) << layer;
    EXPECT_EQ(types.at(name + ".mlp.down_proj.weight"), wide) << layer;
    EXPECT_EQ(types.at(name + ".self_attn.q_proj.weight"), GgufType::Q4_K);
  }
  EXPECT_EQ(types.at("lm_head.weight"), GgufType::Q6_K);
  EXPECT_EQ(types.at("model.embed_tokens.weight"), GgufType::Q4_K);
}

}  // namespace
}  // namespace hone::bench

// SPDX-License-Identifier: Apache-2.0
// Models of thin factors and of layers of different widths give what dense models of one width
// give, whose weights are products in double or have zeros in place of what is missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "hone/kernels/sketch/sketch_op.h"
#include "hone/model_io/tensor_plan.h"
#include "tests/infer/engine_fixture.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/largest_error.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

namespace fs = std::filesystem;
using hone::test::TinyModel;
using model_io::Architecture;
using model_io::FactoredLayer;
using model_io::NamedMatrix;
using model_io::PlannedTensor;

constexpr double kWeightScale = 0.2;

// Values of every tensor of an architecture by name, in file order.
using Values = std::map<std::string, std::vector<float>>;

Values values_of(const TinyModel& model) {
  Values values;
  for (const NamedMatrix& tensor : model.tensors()) {
    auto& one = values[tensor.name] = hone::test::decoded(tensor);
    for (float& value : one) value = static_cast<float>(value * kWeightScale);
  }
  return values;
}

void write(const fs::path& folder, const Architecture& a, const Values& values) {
  std::vector<NamedMatrix> tensors;
  for (const PlannedTensor& planned : model_io::plan_tensors(a)) {
    const auto& one = values.at(planned.name);
    ASSERT_EQ(std::ssize(one), planned.rows * planned.cols) << planned.name;
    NamedMatrix& tensor = tensors.emplace_back();
    tensor.name = planned.name;
    tensor.is_vector = planned.is_vector;
    tensor.matrix.rows = planned.rows;
    tensor.matrix.cols = planned.cols;
    tensor.matrix.bytes = std::as_bytes(std::span(one));
  }
  model_io::write_hugging_face(folder, {a, tensors, nullptr, Json::object()});
}

std::vector<float> logits_of(const fs::path& folder) {
  EngineOptions options;
  options.executor = &serial_executor();
  options.need_tokenizer = false;
  options.kv = KvDtype::Float32;
  options.activations = Activations::Float32;
  const auto engine = Engine::open_or_throw(folder, options);
  const std::vector<TokenId> tokens{1, 7, 9, 30, 4, 4, 21, 40, 3, 17};
  std::vector<float> all;
  engine->score(tokens, {.on_logits = [&](Index, Index, std::span<const float> logits) {
                  all.insert(all.end(), logits.begin(), logits.end());
                }});
  return all;
}

void expect_close(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  hone::test::LargestError largest;
  for (std::size_t i = 0; i < got.size(); ++i) largest.add(got[i], wanted[i]);
  EXPECT_GT(largest.wanted, 0);
  EXPECT_LE(largest.error, 2e-5 * largest.wanted);
}

// bᵀ a / scale in double, where a is [rank, inputs] and b [rank, outputs].
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, Index rank,
                            double scale) {
  const Index inputs = std::ssize(a) / rank, outputs = std::ssize(b) / rank;
  std::vector<double> out(static_cast<std::size_t>(inputs * outputs));
  for (Index r = 0; r < rank; ++r) {
    for (Index o = 0; o < outputs; ++o) {
      for (Index i = 0; i < inputs; ++i)
        out[static_cast<std::size_t>(o * inputs + i)] +=
            a[static_cast<std::size_t>(r * inputs + i)] *
            b[static_cast<std::size_t>(r * outputs + o)] / scale;
    }
  }
  return out;
}

std::vector<double> widen(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

std::vector<double> signs_of(const FactoredLayer& layer, std::uint32_t stream, Index cols) {
  auto signs = kernels::materialize_ref({.kind = kernels::SketchKind::Rademacher,
                                         .rows = layer.width(),
                                         .cols = cols,
                                         .seed = layer.seed,
                                         .stream = stream,
                                         .scaled = false});
  const double size = std::sqrt(static_cast<double>(2 * layer.terms) /
                                static_cast<double>(layer.rank));  // 1 / sqrt(rank / (2 terms))
  for (double& sign : signs) sign *= size;
  return signs;
}

// The weight [outputs, inputs] of a factored layer.
std::vector<double> dense_weight(const FactoredLayer& layer, const Values& values) {
  if (layer.mode == FactoredLayer::Mode::LowRank)
    return product(widen(values.at(layer.name + ".a")), widen(values.at(layer.name + ".b")),
                   layer.rank, 1);
  const auto s1 = widen(values.at(layer.name + ".s1")), s2 = widen(values.at(layer.name + ".s2"));
  const Index inputs = std::ssize(s1) / layer.width(), outputs = std::ssize(s2) / layer.width();
  const double scale = 2.0 * static_cast<double>(layer.terms);
  auto weight = product(s1, signs_of(layer, 0, outputs), layer.width(), scale);
  const auto second = product(signs_of(layer, 1, inputs), s2, layer.width(), scale);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] += second[i];
  return weight;
}

// Replaces the tensors of factored layers by dense ones.
Values dense_values(const Architecture& a, Values values) {
  for (Index layer = 0; layer < a.layers; ++layer) {
    for (const model_io::LayerProduct& planned : model_io::layer_products(a, layer)) {
      const std::string name = model_io::layer_name(layer, planned.name);
      const auto found = std::ranges::find(a.factored, name, &FactoredLayer::name);
      if (found == a.factored.end()) continue;
      const std::vector<double> weight = dense_weight(*found, values);
      Index row = 0;
      for (const auto& [part, rows] : planned.parts) {
        const std::string own = model_io::layer_name(layer, part);
        values[own + ".weight"].assign(weight.begin() + row * planned.inputs,
                                       weight.begin() + (row + rows) * planned.inputs);
        if (planned.bias) {
          const auto& bias = values.at(name + ".bias");
          values[own + ".bias"].assign(bias.begin() + row, bias.begin() + row + rows);
        }
        row += rows;
      }
    }
  }
  return values;
}

Architecture factored_architecture(bool biased) {
  Architecture a = hone::test::tiny_architecture();
  a.attention_bias = a.mlp_bias = biased;
  using enum FactoredLayer::Mode;
  a.factored = {
      {.name = "model.layers.0.self_attn.qkv_proj", .mode = LowRank, .rank = 5},
      {.name = "model.layers.0.mlp.down_proj", .mode = LowRank, .rank = 32},
      {.name = "model.layers.0.self_attn.o_proj", .mode = Sketched, .rank = 12, .seed = 3},
      {.name = "model.layers.1.mlp.gate_up_proj",
       .mode = Sketched,
       .rank = 24,
       .terms = 3,
       .seed = 7},
      {.name = "model.layers.1.self_attn.o_proj", .mode = LowRank, .rank = 1}};
  return a;
}

TEST(FactoredModel, gives_the_logits_of_the_dense_product) {
  for (const bool biased : {false, true}) {
    const hone::test::TemporaryFolder folder;
    const Architecture thin = factored_architecture(biased);
    Architecture dense = thin;
    dense.factored.clear();
    const Values values = values_of(TinyModel(thin));
    write(folder.path() / "thin", thin, values);
    write(folder.path() / "dense", dense, dense_values(thin, values));
    expect_close(logits_of(folder.path() / "thin"), logits_of(folder.path() / "dense"));
  }
}

TEST(FactoredModel, survives_the_artifact_and_takes_quantized_factors) {
  const hone::test::TemporaryFolder folder;
  const Architecture thin = factored_architecture(false);
  write(folder.path() / "thin", thin, values_of(TinyModel(thin)));
  const auto file = test::open_bare(folder.path() / "thin");
  const model_io::ModelSource source{file->architecture(), file->tensors(), nullptr,
                                     Json::object()};
  model_io::write_artifact(folder.path() / "same", source);
  EXPECT_EQ(logits_of(folder.path() / "same"), logits_of(folder.path() / "thin"));
  model_io::write_artifact(folder.path() / "q8", source, model_io::StoreType::Q8_0);
  const auto exact = logits_of(folder.path() / "thin"), rounded = logits_of(folder.path() / "q8");
  double error = 0, size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(exact[i] - rounded[i], 2);
    size += std::pow(exact[i], 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LE(std::sqrt(error / size), 0.05);  // 8 bits: about 0.4 % for each weight
}

// Row blocks `places` of `wide`, of `rows` rows each, are those of `narrow`; the others are zero.
std::vector<float> spread_rows(const std::vector<float>& narrow, Index cols, Index rows,
                               const std::vector<Index>& places, Index blocks) {
  std::vector<float> wide(static_cast<std::size_t>(blocks * rows * cols), 0.0f);
  for (std::size_t i = 0; i < places.size(); ++i)
    std::copy_n(narrow.begin() + static_cast<Index>(i) * rows * cols, rows * cols,
                wide.begin() + places[i] * rows * cols);
  return wide;
}

std::vector<float> spread_cols(const std::vector<float>& narrow, Index rows, Index width,
                               const std::vector<Index>& places, Index blocks) {
  const Index from = width * std::ssize(places), to = width * blocks;
  std::vector<float> wide(static_cast<std::size_t>(rows * to), 0.0f);
  for (Index row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < places.size(); ++i)
      std::copy_n(narrow.begin() + row * from + static_cast<Index>(i) * width, width,
                  wide.begin() + row * to + places[i] * width);
  }
  return wide;
}

TEST(LayerWidths, a_narrow_layer_is_a_wide_one_with_zeros) {
  const hone::test::TemporaryFolder folder;
  Architecture narrow = hone::test::tiny_architecture();  // 4 heads in 2 groups, intermediate 40
  narrow.layer_heads = {4, 2};
  narrow.layer_intermediate = {24, 40};
  const Values values = values_of(TinyModel(narrow));
  write(folder.path() / "narrow", narrow, values);
  Architecture wide = narrow;
  wide.layer_heads.clear();
  wide.layer_intermediate.clear();
  Values padded = values;
  const auto widen_rows = [&](const std::string& name, Index cols, Index rows, auto places,
                              Index blocks) {
    padded[name] = spread_rows(values.at(name), cols, rows, places, blocks);
  };
  std::vector<Index> first(24);
  for (Index i = 0; i < 24; ++i) first[static_cast<std::size_t>(i)] = i;
  widen_rows("model.layers.0.mlp.gate_proj.weight", 32, 1, first, 40);
  widen_rows("model.layers.0.mlp.up_proj.weight", 32, 1, first, 40);
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  padded[down] = spread_cols(values.at(down), 32, 1, first, 40);
  // Heads 0 and 1 read key-value heads 0 and 1, as heads 0 and 2 of four do.
  const std::vector<Index> heads{0, 2};
  widen_rows("model.layers.1.self_attn.q_proj.weight", 32, 16, heads, 4);
  const std::string o = "model.layers.1.self_attn.o_proj.weight";
  padded[o] = spread_cols(values.at(o), 32, 16, heads, 4);
  write(folder.path() / "wide", wide, padded);
  expect_close(logits_of(folder.path() / "narrow"), logits_of(folder.path() / "wide"));
}

TEST(LayerWidths, together_with_factors_give_the_logits_of_the_dense_product) {
  const hone::test::TemporaryFolder folder;
  Architecture thin = factored_architecture(true);
  thin.layer_heads = {2, 4};
  thin.layer_intermediate = {40, 24};
  Architecture dense = thin;
  dense.factored.clear();
  const Values values = values_of(TinyModel(thin));
  write(folder.path() / "thin", thin, values);
  write(folder.path() / "dense", dense, dense_values(thin, values));
  expect_close(logits_of(folder.path() / "thin"), logits_of(folder.path() / "dense"));
}

}  // namespace
}  // namespace hone::infer

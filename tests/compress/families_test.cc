// SPDX-License-Identifier: Apache-2.0
// Every family of the runtime is calibrated, quantized, written and loaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hone/compress/allocate/allocate.h"
#include "hone/compress/compress.h"
#include "hone/compress/method/round.h"
#include "hone/infer/engine.h"
#include "hone/measure/measure.h"
#include "tests/compress/random_texts.h"
#include "tests/model_io/tiny_families.h"
#include "tests/support/test_data.h"

namespace hone::compress {
namespace {

std::vector<std::vector<text::TokenId>> calibration() { return random_texts(6); }

class Families : public testing::TestWithParam<std::size_t> {
 protected:
  Families() : measurer_(measure::make_measurer()) {
    const test::TinyModel tiny(test::tiny_families()[GetParam()]);
    model_io::write_artifact(folder_.path() / "model", tiny.source());
    original_ = test::open_bare(folder_.path() / "model");
  }
  Context context() {
    return {.executor = serial_executor(),
            .measurer = *measurer_,
            .quality = {},
            .calibration = calibration()};
  }
  Result run(const std::vector<PassOptions>& passes) { return run(passes, *original_); }
  Result run(const std::vector<PassOptions>& passes, const model_io::ModelFile& model) {
    Recipe recipe;
    recipe.gate.on_fail = OnFail::Keep;
    recipe.passes = passes;
    Context own = context();
    return compress(model, recipe, own);
  }
  // Writes the model and opens it with the runtime; the mean logarithm of the probabilities.
  double score(const Model& model) {
    const auto path = folder_.path() / "small";
    model_io::write_artifact(
        path, {.architecture = model.architecture(), .tensors = model.tensors(), .file = &model});
    infer::EngineOptions options;
    options.executor = &serial_executor();
    options.need_tokenizer = false;
    const auto engine = infer::Engine::open_or_throw(path, options);
    double sum = 0;
    for (const auto& text : calibration()) {
      for (const double one : engine->score(text).logprobs) sum += one;
    }
    return sum;
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<Measurer> measurer_;
  std::unique_ptr<model_io::ModelFile> original_;
};

TEST_P(Families, is_quantized_with_feedback_and_runs) {
  const Result result = run({QuantizePass{.spec = "int8:row", .rounding = Rounding::Gptq}});
  ASSERT_EQ(result.passes.front().status, Status::Applied);
  Index linear = 0, fed = 0;
  for (std::size_t i = 0; i < result.model.tensors().size(); ++i) {
    const bool is_linear = role_of(result.model.tensors()[i]) == Role::Linear;
    linear += is_linear ? 1 : 0;
    EXPECT_EQ(result.model.is_original(static_cast<Index>(i)),
              role_of(result.model.tensors()[i]) == Role::Other);
  }
  for (const Json& row : result.passes.front().evidence)
    fed += row.contains("output_error") ? 1 : 0;
  EXPECT_EQ(fed, linear);
  const double before = score(Model(*original_)), after = score(result.model);
  EXPECT_TRUE(std::isfinite(after));
  EXPECT_NEAR(after / before, 1, 0.05);
}

TEST_P(Families, gets_formats_for_a_budget) {
  Recipe recipe;
  recipe.gate.on_fail = OnFail::Keep;
  recipe.allocate.bits = 6;
  recipe.allocate.formats = {"int3:g16", "int4:g16", "int6:g16", "int8:row"};
  recipe.passes = {QuantizePass{.spec = "int4:g16", .rounding = Rounding::Gptq}};
  Context own = context();
  const AllocatedRecipe allocated = allocate(Model(*original_), recipe, own);
  EXPECT_TRUE(std::isfinite(allocated.predicted_kl));
  EXPECT_GT(allocated.predicted_kl, 0);
  const Result result = compress(*original_, allocated.recipe, own);
  ASSERT_EQ(result.passes.front().status, Status::Applied);
  EXPECT_EQ(result.model.bytes(), allocated.bytes);
  Index elements = 0, bytes = 0;
  for (std::size_t i = 0; i < result.model.tensors().size(); ++i) {
    if (result.model.is_original(static_cast<Index>(i))) continue;
    const StoredMatrix& matrix = result.model.tensors()[i].matrix;
    elements += matrix.rows * matrix.cols;
    bytes += matrix.stored_bytes();
  }
  EXPECT_LE(8 * bytes, 6 * elements);
  EXPECT_GT(8 * bytes, 5 * elements);
  EXPECT_TRUE(std::isfinite(score(result.model)));
}

TEST_P(Families, is_pruned_by_every_method_and_runs) {
  for (const Saliency saliency : {Saliency::Magnitude, Saliency::Wanda, Saliency::SparseGpt}) {
    const Result result = run({PrunePass{.saliency = saliency, .sparsity = 0.5},
                               QuantizePass{.spec = "int8:row", .rounding = Rounding::Gptq}});
    const Json& counts = result.passes[0].statistics;
    EXPECT_EQ(counts["method"], name_of(saliency));
    EXPECT_NEAR(counts["actual_sparsity"].get<double>(), 0.5, 0.02);
    EXPECT_LT(10 * result.passes[0].bytes_after, 6 * result.passes[0].bytes_before);
    Index zeros = 0, all = 0;
    for (const model_io::NamedMatrix& tensor : result.model.tensors()) {
      if (role_of(tensor) != Role::Linear) continue;
      const std::vector<float> values = test::decoded(tensor);
      zeros += std::ranges::count(values, 0.0f);
      all += std::ssize(values);
    }
    EXPECT_GE(zeros,
              counts["original_params"].get<Index>() - counts["remaining_params"].get<Index>())
        << "quantization brought weights back";
    EXPECT_EQ(all, counts["original_params"]);
    EXPECT_TRUE(std::isfinite(score(result.model)));
    const auto small = test::open_bare(folder_.path() / "small");
    for (const model_io::NamedMatrix& tensor : result.model.tensors())
      EXPECT_TRUE(test::same_bits(test::decoded(small->tensor(tensor.name)), test::decoded(tensor)))
          << tensor.name;
  }
}

TEST_P(Families, loses_width_of_its_mlps_and_runs) {
  const model_io::Architecture& a = original_->architecture();
  for (const bool repair : {true, false}) {
    const Result result =
        run({StructurePass{.part = Part::Ffn, .ratio = 0.25, .round_to = 2, .repair = repair}});
    ASSERT_EQ(result.passes[0].status, Status::Applied) << result.passes[0].reason;
    for (Index layer = 0; layer < a.layers; ++layer)
      EXPECT_NEAR(static_cast<double>(result.model.architecture().intermediate_of(layer)),
                  0.75 * static_cast<double>(a.intermediate_of(layer)), 1);
    EXPECT_LT(result.model.bytes(), original_->file_bytes());
    EXPECT_TRUE(std::isfinite(score(result.model)));
    for (const Json& row : result.passes[0].evidence)
      EXPECT_LE(row["output_error"].get<double>(),
                1.0001 * row["output_error_unrepaired"].get<double>());
  }
}

TEST_P(Families, loses_query_heads_and_runs_or_says_why_not) {
  const model_io::Architecture& a = original_->architecture();
  const std::vector<PassOptions> passes{StructurePass{.part = Part::Heads, .ratio = 0.5}};
  if (a.qk_norm == model_io::QkNorm::Row || a.heads == a.kv_heads) {
    EXPECT_THROW(run(passes), Error);
    return;
  }
  const Result result = run(passes);
  ASSERT_EQ(result.passes[0].status, Status::Applied) << result.passes[0].reason;
  for (Index layer = 0; layer < a.layers; ++layer) {
    const Index each = a.heads_of(layer) / a.kv_heads;
    EXPECT_EQ(result.model.architecture().heads_of(layer), (each - each / 2) * a.kv_heads);
  }
  EXPECT_TRUE(std::isfinite(score(result.model)));
}

TEST_P(Families, loses_a_layer_and_runs) {
  const Result result = run({StructurePass{.part = Part::Layers, .ratio = 0.5}});
  ASSERT_EQ(result.passes[0].status, Status::Applied) << result.passes[0].reason;
  EXPECT_EQ(result.model.architecture().layers, original_->architecture().layers - 1);
  EXPECT_EQ(result.passes[0].evidence.size(), 1u);
  EXPECT_TRUE(std::isfinite(score(result.model)));
}

TEST_P(Families, is_factored_and_its_factors_are_quantized) {
  for (const bool whitened : {true, false}) {
    const Result result = run({LowRankPass{.whitened = whitened, .rank = 16},
                               QuantizePass{.spec = "int8:row", .rounding = Rounding::Gptq}});
    ASSERT_EQ(result.passes[0].status, Status::Applied) << result.passes[0].reason;
    const auto& factored = result.model.architecture().factored;
    EXPECT_EQ(factored.size(), result.passes[0].evidence.size());
    ASSERT_FALSE(factored.empty());
    EXPECT_LT(result.passes[0].bytes_after, result.passes[0].bytes_before);
    Index quantized = 0;
    for (const model_io::FactoredLayer& layer : factored)
      quantized += result.model.tensor(layer.name + ".a").matrix.layout == WeightLayout::Canonical;
    EXPECT_EQ(quantized, std::ssize(factored));
    for (const Json& row : result.passes[1].evidence) {
      if (row["tensor"] == "model.embed_tokens.weight" || row["tensor"] == "lm_head.weight")
        continue;
      EXPECT_LT(row["output_error"].get<double>(), 1e-3) << row["tensor"];
    }
    EXPECT_TRUE(std::isfinite(score(result.model)));
  }
}

TEST_P(Families, is_pruned_and_factored_before_formats_are_chosen) {
  Recipe recipe;
  recipe.gate.on_fail = OnFail::Keep;
  recipe.allocate.bits = 6;
  recipe.allocate.formats = {"int3:g16", "int4:g16", "int6:g16", "int8:row"};
  recipe.passes = {StructurePass{.part = Part::Layers, .ratio = 0.5}, LowRankPass{.rank = 16},
                   QuantizePass{.spec = "int4:g16", .rounding = Rounding::Gptq}};
  Context own = context();
  const Result result = compress(*original_, recipe, own);
  ASSERT_EQ(result.passes.size(), 3u);
  for (const PassRecord& record : result.passes)
    EXPECT_EQ(record.status, Status::Applied) << record.reason;
  // Scales that f16 cannot hold get f32, which is not foreseen.
  EXPECT_NEAR(static_cast<double>(result.model.bytes()) / result.allocation["bytes"].get<double>(),
              1, 0.03);
  EXPECT_FALSE(result.recipe.allocate.is_wanted());
  EXPECT_TRUE(std::isfinite(score(result.model)));
}

// A model whose weights have the rank of the factors loses nothing.
TEST_P(Families, loses_nothing_by_factors_of_the_rank_it_has) {
  Model thin(*original_);
  for (const model_io::NamedMatrix& tensor : original_->tensors()) {
    if (role_of(tensor) != Role::Linear) continue;
    std::vector<float> values = test::decoded(tensor);  // rows repeat, so the rank is 4
    for (Index row = 4; row < tensor.matrix.rows; ++row)
      std::copy_n(values.begin() + row % 4 * tensor.matrix.cols, tensor.matrix.cols,
                  values.begin() + row * tensor.matrix.cols);
    thin.replace(thin.index_of(tensor.name),
                 store_like(tensor.matrix, {values, tensor.matrix.rows, tensor.matrix.cols, "w"},
                            serial_executor()),
                 true);
  }
  for (const bool whitened : {true, false}) {
    const Result result = run({LowRankPass{.whitened = whitened, .rank = 16}}, thin);
    ASSERT_EQ(result.passes[0].status, Status::Applied) << result.passes[0].reason;
    EXPECT_NEAR(score(result.model) / score(thin), 1, 2e-4);
  }
}

// The parts of a layer that is alike in all inputs can go without a loss.
TEST_P(Families, loses_nothing_by_columns_that_repeat) {
  const model_io::Architecture& a = original_->architecture();
  Model doubled(*original_);
  for (Index layer = 0; layer < a.layers; ++layer) {
    const auto products = model_io::layer_products(a, layer);
    for (const auto& [part, rows] : products[2].parts) {
      for (const char* kind : {".weight", ".bias"}) {
        const auto* tensor = doubled.find(model_io::layer_name(layer, std::string(part) + kind));
        if (tensor == nullptr) continue;
        std::vector<float> values = test::decoded(*tensor);
        const Index width = std::ssize(values) / rows;
        for (Index row = 0; row + 1 < rows; row += 2)
          std::copy_n(values.begin() + row * width, width, values.begin() + (row + 1) * width);
        doubled.replace(
            doubled.index_of(tensor->name),
            store_like(tensor->matrix, {values, tensor->matrix.rows, tensor->matrix.cols, "w"},
                       serial_executor()),
            true);
      }
    }
  }
  const Result result =
      run({StructurePass{.part = Part::Ffn, .ratio = 0.5, .round_to = 1, .damp = 1e-9}}, doubled);
  EXPECT_NEAR(score(result.model) / score(doubled), 1, 2e-3);
  for (const Json& row : result.passes[0].evidence)
    EXPECT_LT(row["output_error"].get<double>(), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         testing::Range<std::size_t>(0, test::tiny_families().size()));

}  // namespace
}  // namespace hone::compress

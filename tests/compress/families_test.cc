// SPDX-License-Identifier: Apache-2.0
// Every family of the runtime is calibrated, quantized, written and loaded.
#include <gtest/gtest.h>

#include <cmath>

#include "hone/compress/allocate/allocate.h"
#include "hone/compress/compress.h"
#include "hone/infer/engine.h"
#include "hone/measure/measure.h"
#include "tests/model_io/tiny_families.h"
#include "tests/support/test_data.h"

namespace hone::compress {
namespace {

std::vector<std::vector<text::TokenId>> calibration() {
  PhiloxStream random(5);
  std::vector<std::vector<text::TokenId>> texts(6);
  for (auto& text : texts) {
    for (int i = 0; i < 40; ++i) text.push_back(static_cast<text::TokenId>(random.below(48)));
  }
  return texts;
}

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
  Recipe recipe;
  recipe.gate.on_fail = OnFail::Keep;
  recipe.passes.push_back({.spec = "int8:row", .rounding = Rounding::Gptq});
  Context own = context();
  const Result result = compress(*original_, recipe, own);
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
  recipe.passes.push_back({.spec = "int4:g16", .rounding = Rounding::Gptq});
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

INSTANTIATE_TEST_SUITE_P(All, Families,
                         testing::Range<std::size_t>(0, test::tiny_families().size()));

}  // namespace
}  // namespace hone::compress

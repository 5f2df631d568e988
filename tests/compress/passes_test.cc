// SPDX-License-Identifier: Apache-2.0
// Passes one behind the other, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hone/compress/compress.h"
#include "hone/compress/forecast.h"
#include "hone/compress/method/round.h"
#include "hone/measure/measure.h"
#include "tests/compress/random_texts.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::compress {
namespace {

using testing::HasSubstr;

class Passes : public testing::Test {
 protected:
  Passes() : measurer_(measure::make_measurer()) {
    model_io::Architecture a = test::tiny_architecture();
    a.layers = 4;
    a.hidden_size = 64;
    a.intermediate_size = 128;
    tiny_ = std::make_unique<test::TinyModel>(a);
    model_io::write_artifact(folder_.path() / "model", tiny_->source());
    original_ = test::open_bare(folder_.path() / "model");
  }
  void quantize_original(model_io::StoreType type) {
    model_io::write_gguf(folder_.path() / "model.gguf", tiny_->source(), type);
    original_ = test::open_bare(folder_.path() / "model.gguf");
  }
  Result run(const std::vector<PassOptions>& passes) {
    recipe_.gate.on_fail = OnFail::Keep;
    recipe_.passes = passes;
    Context context{.executor = serial_executor(), .measurer = *measurer_, .quality = quality_};
    context.calibration = random_texts(3);
    return compress(*original_, recipe_, context);
  }
  std::string refused(const std::vector<PassOptions>& passes) {
    return hone::test::refusal([&] { run(passes); });
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<Measurer> measurer_;
  std::unique_ptr<test::TinyModel> tiny_;
  std::unique_ptr<model_io::ModelFile> original_;
  std::function<Quality(const Model&)> quality_;
  Recipe recipe_;
};

// What was sliced or pruned in its own codes is rounded again like everything else.
TEST_F(Passes, quantize_what_others_changed_in_a_quantized_original) {
  quantize_original(model_io::StoreType::Q8_0);
  recipe_.requantize = true;
  for (const PassOptions& first :
       std::vector<PassOptions>{StructurePass{.part = Part::Ffn, .ratio = 0.25},
                                PrunePass{.saliency = Saliency::Magnitude, .sparsity = 0.5}}) {
    const Result result = run({first, QuantizePass{.spec = "q4_0"}});
    Index four = 0, linear = 0;
    for (const model_io::NamedMatrix& tensor : result.model.tensors()) {
      if (role_of(tensor) != Role::Linear) continue;
      ++linear;
      four += tensor.matrix.block_type == GgufType::Q4_0 ? 1 : 0;
    }
    EXPECT_EQ(four, linear);
  }
  const Result twice =
      run({QuantizePass{.spec = "q4_0", .apply = {"*mlp*"}}, QuantizePass{.spec = "q5_0"}});
  EXPECT_EQ(twice.model.tensor("model.layers.0.mlp.up_proj.weight").matrix.block_type,
            GgufType::Q4_0);
  EXPECT_EQ(twice.model.tensor("model.layers.0.self_attn.q_proj.weight").matrix.block_type,
            GgufType::Q5_0);
}

TEST_F(Passes, keep_quantized_matrices_without_permission) {
  quantize_original(model_io::StoreType::Q8_0);
  EXPECT_THAT(refused({PrunePass{}}), HasSubstr("keeps its codes"));
  EXPECT_THAT(refused({StructurePass{}}), HasSubstr("keeps its codes"));
  EXPECT_THAT(refused({LowRankPass{.rank = 32}}), HasSubstr("keeps its codes"));
}

TEST_F(Passes, factor_a_quantized_original) {
  quantize_original(model_io::StoreType::Q8_0);
  recipe_.requantize = true;
  for (const Index rank : {16, 17}) {
    const Result result = run({LowRankPass{.rank = rank}});
    ASSERT_EQ(result.passes[0].status, Status::Applied) << result.passes[0].reason;
    for (const model_io::FactoredLayer& layer : result.model.architecture().factored)
      EXPECT_EQ(layer.rank, rank == 16 ? 16 : 32);
  }
}

TEST_F(Passes, compare_only_magnitudes_across_matrices) {
  for (const Saliency saliency : {Saliency::Wanda, Saliency::SparseGpt})
    EXPECT_THAT(refused({PrunePass{.saliency = saliency, .global = true}}),
                HasSubstr("Only magnitudes"));
}

TEST_F(Passes, remove_layers_only_where_globs_allow_it) {
  const Result result = run({StructurePass{
      .part = Part::Layers, .ratio = 0.5, .except = {"model.layers.0.*", "model.layers.3.*"}}});
  std::vector<Index> gone;
  for (const Json& row : result.passes[0].evidence) gone.push_back(row["layer"].get<Index>());
  EXPECT_THAT(gone, testing::UnorderedElementsAre(1, 2));
  EXPECT_THAT(refused({StructurePass{.part = Part::Layers, .except = {"nothing*"}}}),
              HasSubstr("matches no tensor"));
  EXPECT_THAT(refused({StructurePass{.part = Part::Layers, .except = {"model.layers.*"}}}),
              HasSubstr("no layer to remove"));
  EXPECT_THAT(refused({StructurePass{.part = Part::Layers, .ratio = 0.01}}),
              HasSubstr("removes none"));
}

TEST_F(Passes, leave_a_layer_however_many_are_to_go) {
  const StructurePass most{.part = Part::Layers, .ratio = 0.75};
  const Result result = run({most, most, most});
  EXPECT_EQ(result.model.architecture().layers, 1);
}

TEST_F(Passes, unite_widths_that_have_become_alike) {
  const Result result =
      run({StructurePass{.part = Part::Ffn, .except = {"model.layers.2.*"}},
           StructurePass{.part = Part::Layers, .ratio = 0.25, .apply = {"model.layers.2.*"}}});
  EXPECT_EQ(result.model.architecture().layers, 3);
  EXPECT_TRUE(result.model.architecture().has_uniform_widths());
  EXPECT_EQ(result.model.architecture().intermediate_size, 96);
}

// Kept passes are measured once, at the end, and the gate then speaks of what was measured.
TEST_F(Passes, that_are_kept_have_one_measurement_and_say_so) {
  int count = 0;
  quality_ = [&count](const Model&) {
    ++count;
    return Quality{
        .ppl_ratio = 2, .ppl_ratio_low = 2, .ppl_ratio_high = 2, .card = {{"text", "t"}}};
  };
  recipe_.gate.min_speedup = 0;
  const Result both =
      run({QuantizePass{.spec = "int4:g16", .apply = {"*mlp*"}}, QuantizePass{.spec = "int8:row"}});
  EXPECT_EQ(count, 1);
  EXPECT_THAT(both.passes[0].reason, HasSubstr("measured after the last"));
  EXPECT_THAT(both.passes[1].reason, HasSubstr("perplexity ratio 2"));
  count = 0;
  const Result last_idle =
      run({QuantizePass{.spec = "int8:row"}, QuantizePass{.spec = "int8:row"}});
  EXPECT_EQ(count, 1);
  EXPECT_EQ(last_idle.passes[1].status, Status::Skipped);
  EXPECT_THAT(last_idle.passes[0].reason, HasSubstr("perplexity ratio 2"));
}

TEST_F(Passes, are_forecast_near_what_they_make) {
  const std::vector<std::vector<PassOptions>> recipes{
      {QuantizePass{.spec = "int4:g32"}},
      {PrunePass{.saliency = Saliency::Magnitude, .sparsity = 0.7}},
      {PrunePass{.saliency = Saliency::Magnitude, .sparsity = 0.7},
       QuantizePass{.spec = "int8:row"}},
      {StructurePass{.part = Part::Ffn, .ratio = 0.5, .except = {"model.layers.0.*"}}},
      {StructurePass{.part = Part::Heads, .ratio = 0.5}, QuantizePass{.spec = "q4_0"}},
      {StructurePass{.part = Part::Layers, .ratio = 0.5}},
      {LowRankPass{.rank = 16}, QuantizePass{.spec = "int4:g16"}}};
  for (const auto& passes : recipes) {
    const Result result = run(passes);
    const auto path = folder_.path() / "small";
    model_io::write_artifact(path, {.architecture = result.model.architecture(),
                                    .tensors = result.model.tensors(),
                                    .file = &result.model});
    const auto written =
        static_cast<double>(std::filesystem::file_size(path / "model.safetensors"));
    const Forecast said =
        forecast(*original_, recipe_, {.overhead = 10000}, 1000, serial_executor());
    EXPECT_NEAR(static_cast<double>(said.file_bytes) / written, 1, 0.15) << result.passes[0].name;
    EXPECT_GT(said.peak_bytes, said.file_bytes);
    EXPECT_GT(said.minutes, 0);
  }
}

// A budget that cannot be met is refused before the long measurement.
TEST_F(Passes, budgets_below_the_smallest_formats_are_refused_at_once) {
  recipe_.passes = {QuantizePass{}};
  recipe_.allocate.formats = {"int3:g16", "int8:row"};
  const auto refusal = [&] {
    return hone::test::refusal([&] { check_recipe(*original_, recipe_); });
  };
  recipe_.allocate.bits = 4.9;  // three bits and a scale of two bytes for each group of 16
  EXPECT_EQ(refusal(), "");
  recipe_.allocate.bits = 3.9;
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("[bits]"), HasSubstr("at least 4")));
  recipe_.allocate.bits = 0;
  recipe_.allocate.size_mb = 0.05;
  EXPECT_THAT(refusal(), HasSubstr("[size]"));
  recipe_.allocate.size_mb = static_cast<double>(original_->file_bytes()) / 2e6;
  EXPECT_EQ(refusal(), "");
  const Index all = original_->file_bytes();
  EXPECT_THAT(hone::test::refusal([&] { check_recipe(*original_, recipe_, all); }),
              HasSubstr("[size]"))
      << "what the file has beside its tensors counts";
  // What a pass before removes is not known.
  recipe_.passes.insert(recipe_.passes.begin(), StructurePass{.part = Part::Layers, .ratio = 0.5});
  EXPECT_EQ(refusal(), "");
}

}  // namespace
}  // namespace hone::compress

// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_layers.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hone/bench/torch/bench_layer_step.h"
#include "hone/bench/torch/layer_contestants.h"
#include "hone/core/file/file_io.h"
#include "hone/core/machine/clock.h"
#include "hone/measure/measure.h"
#include "tests/bench/torch/bench_rows.h"
#include "tests/report/report_xml.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::bench {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::row_of;
using test::worst;
using testing::HasSubstr;
using torch::Tensor;

Json report_of(BenchLayersOptions options, Index repeat = 1) {
  options.threads = 1;
  const auto measurer = measure::make_measurer();
  BenchRun run(*measurer, {.quick = true, .repeat = repeat});
  bench_layers(options, run);
  EXPECT_FALSE(run.table().empty());
  return run.report();
}

Index count_of(const std::string& text, const std::string& part) {
  Index count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(BatchedLayer, is_the_sketched_layer_in_value_and_gradients) {
  nn::FactoredLinear layer(nn::FactoredLinearOptions{
      .in_features = 12, .out_features = 20, .rank = 24, .terms = 3, .seed = 5});
  layer->to(at::kDouble);
  const BatchedLayer batched = BatchedLayer::of(*layer);
  at::manual_seed(3);
  const Tensor x = at::randn({7, 12}, at::kDouble).requires_grad_();
  const Tensor g = at::randn({7, 20}, at::kDouble);
  const Tensor ours = layer->forward(x), theirs = batched.forward(x);
  EXPECT_LE(worst(theirs, ours), 1e-10);
  EXPECT_LE(worst(batched.effective_weight(), layer->effective_weight()), 1e-10);
  const auto by_ours =
      torch::autograd::grad({ours}, {layer->first(), layer->second(), layer->bias(), x}, {g});
  const auto by_theirs =
      torch::autograd::grad({theirs}, {batched.s1, batched.s2, batched.bias, x}, {g});
  EXPECT_LE(worst(by_theirs[0].transpose(1, 2).reshape({12, 12}), by_ours[0]), 1e-10);
  EXPECT_LE(worst(by_theirs[1].reshape({12, 20}), by_ours[1]), 1e-10);
  EXPECT_LE(worst(by_theirs[2], by_ours[2]), 1e-10);
  EXPECT_LE(worst(by_theirs[3], by_ours[3]), 1e-10);
}

// The 36 layers of a published tutorial, measured once, with charts.
class TutorialGrid : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TemporaryFolder;
    report_ = report_of({.grid = "tutorial",
                         .fits = {"random"},
                         .against = {"dense"},
                         .plots = folder_->path() / "plots"});
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::string plot(const char* name) {
    return read_text_file(folder_->path() / "plots" / name);
  }
  static test::TemporaryFolder* folder_;
  static Json report_;
};
test::TemporaryFolder* TutorialGrid::folder_ = nullptr;
Json TutorialGrid::report_;

TEST_F(TutorialGrid, has_eight_layers_below_the_dense_one) {
  using Pair = std::pair<Index, Index>;
  std::set<Pair> below, all;
  const Index dense =
      row_of(report_, "1024x512/b128/forward", "dense").at("stored_count").get<Index>();
  for (const Json& row : report_.at("rows")) {
    if (row.at("rank").is_null()) continue;
    const Pair pair{row.at("num_terms").get<Index>(), row.at("low_rank").get<Index>()};
    all.insert(pair);
    const bool is_below = row.at("stored_count").get<Index>() < dense;
    if (is_below) below.insert(pair);
    EXPECT_EQ(row.at("past_break_even").get<bool>(), !is_below) << row;
    EXPECT_EQ(row.at("rank").get<Index>(), 2 * pair.first * pair.second);
  }
  EXPECT_EQ(all.size(), 36u);
  EXPECT_EQ(below, (std::set<Pair>{
                       {2, 16}, {2, 32}, {2, 48}, {2, 64}, {4, 16}, {4, 32}, {6, 16}, {8, 16}}));
}

// A copy of a weight that is right on average has this error in the mean of squares.
TEST_F(TutorialGrid, every_row_has_its_error_numbers_and_memory) {
  ASSERT_EQ(report_.at("rows").size(), 37u);
  for (const Json& row : report_.at("rows")) {
    for (const char* field :
         {"trainable_count", "stored_count", "stored_bytes", "flops", "rel_error",
          "peak_memory_bytes", "memory_predicted_bytes", "median_ms", "p10_ms", "p90_ms"}) {
      EXPECT_TRUE(row.contains(field) && row.at(field).is_number()) << field << " " << row;
    }
    EXPECT_THAT(row.at("weight").get<std::string>(), HasSubstr("seeded"));
    if (row.at("rank").is_null()) continue;
    EXPECT_EQ(row.at("fit"), "random");
    const double width = row.at("rank").get<double>() / 2;
    EXPECT_NEAR(row.at("rel_error").get<double>(), std::sqrt((1024 + 512 - 2) / (4 * width)),
                0.05 * row.at("rel_error").get<double>());
    EXPECT_EQ(row.at("ratio").at("against"), "dense");
    EXPECT_DOUBLE_EQ(row.at("flops").get<double>(),
                     128 * 2 * row.at("rank").get<double>() * (1024 + 512));
  }
}

TEST_F(TutorialGrid, charts_show_36_points_and_six_lines) {
  const std::string landscape = plot("landscape.svg"), pareto = plot("pareto.svg");
  EXPECT_EQ(report::test::find_xml_fault(landscape), "");
  EXPECT_EQ(report::test::find_xml_fault(pareto), "");
  EXPECT_EQ(count_of(landscape, "<circle class=\"bubble"), 2 * 36);
  EXPECT_EQ(count_of(landscape, "<polyline class=\"line"), 2 * 6);
  EXPECT_EQ(count_of(landscape, "class=\"dot "), 2 * 36);
  EXPECT_EQ(count_of(landscape, ">break-even "), 2);
  EXPECT_EQ(count_of(landscape, "<g transform"), 4);
  EXPECT_EQ(count_of(pareto, "<circle class=\"bubble"), 37);
  EXPECT_GE(count_of(pareto, "<circle class=\"bubble on-front"), 1);
}

TEST_F(TutorialGrid, tables_hold_all_rows) {
  const std::string csv = plot("layers.csv");
  EXPECT_EQ(count_of(csv, "\n"), 1 + 37);
  const Index columns = count_of(csv.substr(0, csv.find('\n')), ",");
  EXPECT_EQ(count_of(csv, ","), columns * 38);
  EXPECT_EQ(parse_json(plot("layers.json"), "layers.json").at("rows"), report_.at("rows"));
  EXPECT_THAT(plot("report.html"), HasSubstr("sketched_16x128"));
  EXPECT_EQ(parse_json(plot("report.json"), "report.json").at("bench").at("rows").size(), 37u);
}

TEST(BenchLayers, tells_how_much_more_published_layers_store) {
  const auto ratio = [](const std::string& shape, Index terms, Index low_rank) {
    const Json report = report_of({.shapes = {shape},
                                   .batches = {1},
                                   .terms = {terms},
                                   .low_ranks = {low_rank},
                                   .modes = {"sketched"},
                                   .fits = {"random"},
                                   .passes = {"memory"}});
    const std::string name = shape + "/b1/memory";
    const Json& dense = row_of(report, name, "dense");
    const Json& layer =
        row_of(report, name, "sketched_" + std::to_string(terms) + "x" + std::to_string(low_rank));
    const Index outputs = std::stoll(shape.substr(shape.find('x') + 1));
    const double stored = layer.at("stored_count").get<double>() - double(outputs);
    const double over = stored / (dense.at("stored_count").get<double>() - double(outputs));
    EXPECT_DOUBLE_EQ(layer.at("break_even").get<double>(), over);
    return over;
  };
  EXPECT_DOUBLE_EQ(ratio("2048x1024", 8, 128), 3);
  EXPECT_DOUBLE_EQ(ratio("1024x512", 6, 96), 3.375);
  EXPECT_NEAR(ratio("1000x500", 8, 64), 3.07, 0.005);
  EXPECT_NEAR(ratio("500x250", 6, 48), 3.46, 0.005);
  EXPECT_NEAR(ratio("250x10", 4, 32), 26.62, 0.005);
}

// A second model that is alive does not count.
TEST(BenchLayers, memory_is_linear_in_the_batch_from_the_weights_on) {
  const memory::MemoryMeter meter;
  const Tensor other = at::ones({1 << 20});
  const Json report = report_of({.shapes = {"160x96"},
                                 .terms = {2},
                                 .low_ranks = {8},
                                 .passes = {"memory"},
                                 .against = {"dense", "bmm"},
                                 .matmul = "mkl"});
  const auto field = [&](Index batch, const std::string& impl, const char* name) {
    const std::string of = "160x96/b" + std::to_string(batch) + "/memory";
    return row_of(report, of, impl).at(name).get<Index>();
  };
  EXPECT_EQ(report.at("rows").size(), 4u * 4u);
  for (const std::string impl : {"dense", "sketched_2x8", "lowrank_32", "bmm_2x8"}) {
    const Index weights = field(32, impl, "weight_bytes");
    const Index trained = 4 * field(32, impl, "trainable_count");
    for (const Index batch : {32, 64, 128, 256}) {
      const auto at = [&](const char* name) { return field(batch, impl, name); };
      const auto bytes = [&](const char* name) { return static_cast<double>(at(name)); };
      EXPECT_EQ(at("weight_bytes"), weights);
      EXPECT_EQ(at("activation_bytes") * 32, field(32, impl, "activation_bytes") * batch) << impl;
      EXPECT_EQ(at("gradient_bytes"), trained + batch * 160 * 4) << impl;
      const Index slope =
          (field(256, impl, "forward_peak_bytes") - field(32, impl, "forward_peak_bytes")) / 224;
      const double scalars = impl == "bmm_2x8" ? 16 : 0;  // the factor of its mean is a tensor
      EXPECT_NEAR(bytes("forward_peak_bytes"), static_cast<double>(weights + slope * batch),
                  scalars)
          << impl;
      if (impl == "bmm_2x8") continue;
      EXPECT_NEAR(bytes("forward_peak_bytes"), bytes("forward_predicted_bytes"),
                  0.05 * bytes("forward_peak_bytes"))
          << impl << " " << batch;
      EXPECT_NEAR(bytes("peak_memory_bytes"), bytes("memory_predicted_bytes"),
                  0.05 * bytes("peak_memory_bytes"))
          << impl << " " << batch;
    }
  }
  EXPECT_EQ(field(32, "dense", "weight_bytes"), 4 * (160 * 96 + 96));
  EXPECT_EQ(field(32, "sketched_2x8", "weight_bytes"), 4 * (32 * (160 + 96) + 96) + 16);
  EXPECT_EQ(field(32, "sketched_2x8", "activation_bytes"), 4 * 32 * (160 + 16 + 96));
}

Tensor seeded_weight(Index inputs, Index outputs, std::uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({outputs, inputs}, generator, at::TensorOptions().dtype(at::kFloat)) /
         std::sqrt(double(inputs));
}

TEST(BenchLayers, errors_are_those_of_the_fits) {
  const Json report = report_of({.shapes = {"256x192"},
                                 .batches = {3},
                                 .ranks = {32, 64},
                                 .modes = {"sketched", "lowrank", "frozen"},
                                 .fits = {"random", "projection", "svd"},
                                 .passes = {"forward", "train"},
                                 .against = {"dense", "dense_hone", "bmm"},
                                 .cold = true,
                                 .seed = 9});
  const Tensor values = at::linalg_svdvals(seeded_weight(256, 192, 9));
  for (const Index rank : {32, 64}) {
    const auto error = [&](const std::string& impl) {
      return row_of(report, "256x192/b3/forward", impl).at("rel_error").get<double>();
    };
    const std::string all = "_" + std::to_string(rank), one = "_1x" + std::to_string(rank / 2);
    const double tail = (values.narrow(0, rank, 192 - rank).norm() / values.norm()).item<double>();
    EXPECT_NEAR(error("lowrank" + all), tail, 1e-4);
    EXPECT_NEAR(error("frozen_f32" + all), tail, 1e-4);
    EXPECT_NEAR(error("frozen_int8" + all), tail, 1e-2);
    EXPECT_NE(error("frozen_int8" + all), error("frozen_f32" + all));
    const double width = double(rank) / 2;
    EXPECT_NEAR(error("sketched" + one), std::sqrt((1 - width / 256) * (1 - width / 192)), 0.02);
    EXPECT_NEAR(error("bmm" + one), error("sketched" + one), 1e-5);
    const Json& row = row_of(report, "256x192/b3/forward", "sketched" + one);
    EXPECT_NEAR(row.at("rel_errors_of_other_fits").at("random").get<double>(),
                std::sqrt((256 + 192 - 2) / (4 * width)), 0.3);
    EXPECT_EQ(row.at("cold"), true);
    EXPECT_EQ(row_of(report, "256x192/b3/train", "sketched" + one).at("flops").get<Index>(),
              3 * (2 + 3) * rank * (256 + 192));
    EXPECT_EQ(row_of(report, "256x192/b3/train", "frozen_int8" + all).at("status"),
              "skipped: frozen layers are not trained");
  }
  const Index f32 = row_of(report, "256x192/b3/forward", "frozen_f32_64").at("stored_bytes");
  EXPECT_LT(row_of(report, "256x192/b3/forward", "frozen_int8_64").at("stored_bytes").get<Index>(),
            f32 / 3);
}

TEST(BenchLayers, ratios_are_over_the_faster_dense_layer) {
  const Json report = report_of({.shapes = {"64x64"}, .batches = {5}, .grid = "reference"}, 5);
  const std::string name = "64x64/b5/forward";
  const double dense = row_of(report, name, "dense").at("median_ms");
  const double own = row_of(report, name, "dense_hone").at("median_ms");
  Index of_layers = 0;
  for (const Json& row : report.at("rows")) {
    if (row.at("mode") != "sketched") continue;
    ++of_layers;
    const Json& ratio = row.at("ratio");
    EXPECT_EQ(ratio.at("against"), dense < own ? "dense" : "dense_hone");
    EXPECT_NEAR(ratio.at("ratio").get<double>(),
                std::min(dense, own) / row.at("median_ms").get<double>(), 1e-9);
    EXPECT_LE(ratio.at("ci").at(0), ratio.at("ci").at(1));
  }
  EXPECT_EQ(of_layers, 16);
  EXPECT_EQ(report.at("ratios").size(), 32u);
  const Json& mean = report.at("geometric_means").at(0);
  EXPECT_EQ(mean.at("points"), 16);
  EXPECT_LE(mean.at("wholly_below").get<Index>(), 16);
  EXPECT_LE(mean.at("ci").at(0), mean.at("ci").at(1));
}

TEST(BenchLayers, convolutions_stand_beside_dense_ones) {
  const Json report = report_of({.convs = {"16x24:3:2:1:9x7"},
                                 .batches = {2},
                                 .ranks = {8},
                                 .modes = {"sketched", "lowrank", "frozen_int8"},
                                 .passes = {"forward", "train", "memory"},
                                 .against = {"dense", "dense_hone", "bmm"}});
  const std::string name = "conv 16x24:3:2:1:9x7/b2/";
  const Json& row = row_of(report, name + "forward", "sketched_1x4");
  EXPECT_DOUBLE_EQ(row.at("break_even").get<double>(), 8.0 * (144 + 24) / (144 * 24));
  EXPECT_EQ(row.at("flops").get<Index>(), 2 * 2 * 8 * (144 + 24) * (5 * 4));
  EXPECT_EQ(row_of(report, name + "train", "dense").at("flops").get<Index>(),
            3 * 2 * 2 * 144 * 24 * (5 * 4));
  EXPECT_NEAR(row.at("rel_error").get<double>(), std::sqrt(1 - 8.0 / 24), 0.05);
  EXPECT_LT(row_of(report, name + "forward", "lowrank_8").at("rel_error").get<double>(),
            row.at("rel_error").get<double>());
  for (const char* impl : {"dense_hone", "bmm", "frozen_int8"}) {
    EXPECT_THAT(row_of(report, name + "forward", impl).at("status").get<std::string>(),
                HasSubstr("skipped: "))
        << impl;
  }
  EXPECT_EQ(row_of(report, name + "memory", "sketched_1x4").at("activation_bytes").get<Index>(),
            4 * 2 * (16 * 63 + 24 * 20));
}

TEST(BenchLayers, refuses_by_name) {
  const auto refused = [](const BenchLayersOptions& options) {
    return error_of([&] { report_of(options); });
  };
  const std::string huge = "99999999999999999999x4";
  for (const std::string& shape : {std::string("4096"), std::string("0x4"), std::string("4x-4"),
                                   std::string("1048576x1048576"), huge, std::string("4x4x4")}) {
    EXPECT_THAT(refused({.shapes = {shape}}), HasSubstr("got " + shape));
  }
  EXPECT_THAT(refused({.convs = {"3x8"}}), HasSubstr("512x512:3:1:1:64x64, got 3x8"));
  EXPECT_THAT(refused({.convs = {"3x8:9:1:0:4x4"}}), HasSubstr("not smaller than the kernel"));
  EXPECT_THAT(refused({.convs = {"3x8:0:1:0:4x4"}}), HasSubstr("kernels and strides of 1"));
  EXPECT_THAT(refused({.batches = {0}}), HasSubstr("a batch of 1 to 65536, got 0"));
  EXPECT_THAT(refused({.ranks = {0}}), HasSubstr("a rank of 1 to 65536, got 0"));
  EXPECT_THAT(refused({.ranks = {7}}), HasSubstr("an even rank of sketched layers, got 7"));
  EXPECT_THAT(refused({.terms = {0}, .low_ranks = {4}}), HasSubstr("terms of 1 to 64, got 0"));
  EXPECT_THAT(refused({.terms = {2}, .low_ranks = {0}}), HasSubstr("with 2 terms, got 0"));
  EXPECT_THAT(refused({.terms = {2}}), HasSubstr("given together"));
  EXPECT_THAT(refused({.ranks = {4}, .low_ranks = {4}}), HasSubstr("Either ranks"));
  EXPECT_THAT(refused({.ranks = {4}, .grid = "tutorial"}), HasSubstr("its own"));
  EXPECT_THAT(refused({.grid = "tutorail"}), HasSubstr("Did you mean 'tutorial'?"));
  EXPECT_THAT(refused({.modes = {"sketch"}}), HasSubstr("'sketched'"));
  EXPECT_THAT(refused({.fits = {"qr"}}), HasSubstr("Unknown fit 'qr'"));
  EXPECT_THAT(refused({.fits = {"svd"}}), HasSubstr("at random or by projection"));
  EXPECT_THAT(refused({.matmul = "blas"}), HasSubstr("auto, onednn or mkl, got blas"));
  EXPECT_THAT(refused({.fits = {"random"}}), HasSubstr("Low-rank layers are fitted by svd"));
  EXPECT_THAT(refused({.passes = {"backward"}}), HasSubstr("Unknown pass 'backward'"));
  EXPECT_THAT(refused({.against = {"them"}}), HasSubstr("Unknown contestant 'them'"));
  EXPECT_THAT(refused({.modes = {"lowrank"}, .against = {"bmm"}}), HasSubstr("needs the mode"));
  EXPECT_THAT(refused({.shapes = {"8x8"}, .step = "llama-160m"}), HasSubstr("Of a step"));
  EXPECT_THAT(refused({.step = "llama"}), HasSubstr("llama3-1b or llama-160m, got llama"));
  EXPECT_THAT(refused({.batches = {0}, .step = "llama-160m"}), HasSubstr("4096 sequences, got 0"));
  EXPECT_THAT(refused({.passes = {"memory"}, .plots = "somewhere"}), HasSubstr("Plots show"));
  EXPECT_THAT(refused({.shapes = {"16384x16384"}, .batches = {65536}, .ranks = {65536}}),
              HasSubstr("B that are free"));
}

TEST(BenchLayers, measure_the_training_step_with_half_of_the_bytes_of_mlps) {
  model_io::Architecture architecture;
  architecture.vocab_size = 50, architecture.hidden_size = 16;
  architecture.intermediate_size = 40, architecture.layers = 2;
  architecture.heads = architecture.kv_heads = 2;
  architecture.head_dim = architecture.rope.rotary_dims = 8;
  architecture.context = kStepPositions;
  const auto measurer = measure::make_measurer();
  BenchRun run(*measurer, {.quick = true, .repeat = 5});
  bench_layer_step(architecture, {.batches = {1, 2}}, run);
  const Json report = run.report();
  for (const char* name : {"step/b1x128", "step/b2x128"}) {
    const Json &dense = row_of(report, name, "dense"), &ours = row_of(report, name, "lowrank");
    const Index mlps = 2 * 3 * 16 * 40;  // numbers of the products of two MLPs
    EXPECT_EQ(dense.at("mlp_bytes"), 4 * mlps);
    EXPECT_LE(ours.at("mlp_bytes").get<Index>(), 2 * mlps);
    EXPECT_GE(ours.at("mlp_bytes").get<Index>(), 1.7 * mlps);  // ranks are whole
    EXPECT_EQ(dense.at("parameters").get<Index>() - ours.at("parameters").get<Index>(),
              (dense.at("mlp_bytes").get<Index>() - ours.at("mlp_bytes").get<Index>()) / 4);
    EXPECT_GT(ours.at("tokens_per_s"), 0);
  }
  EXPECT_EQ(report.at("ratios").size(), 2);
  EXPECT_EQ(report.at("ratios").at(0).at("impl"), "lowrank");
}

TEST(BenchLayers, plots_replace_only_plots) {
  const test::TemporaryFolder folder;
  const fs::path file = folder.path() / "file", plots = folder.path() / "plots";
  BenchLayersOptions options{.shapes = {"24x16"}, .batches = {2}, .ranks = {4}, .plots = plots};
  report_of(options);
  report_of(options);
  EXPECT_TRUE(fs::exists(plots / "landscape.svg"));
  write_text_file(plots / "notes.txt", "mine");
  EXPECT_THAT(error_of([&] { report_of(options); }), HasSubstr("holds 'notes.txt'"));
  EXPECT_EQ(read_text_file(plots / "notes.txt"), "mine");
  write_text_file(file, "mine");
  options.plots = file;
  EXPECT_THAT(error_of([&] { report_of(options); }), HasSubstr("this is a file"));
  EXPECT_EQ(read_text_file(file), "mine");
}

}  // namespace
}  // namespace hone::bench

// SPDX-License-Identifier: Apache-2.0
#include "hone/train/tuner/tune_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/file/file_io.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/tuner/layer_groups.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::tuner {
namespace {

using test::refusal;
using testing::AllOf;
using testing::HasSubstr;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

constexpr const char* kHead = "kind = \"layers\"\nquality = { metric = \"loss\" }\n";

// up and down are 64 x 128, conv is 8 * 9 x 16; tied shares the weight of up's copy.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("up", nn::Slot(torch::nn::Linear(64, 128)));
    register_module("down", nn::Slot(torch::nn::Linear(128, 64)));
    register_module("small", nn::Slot(torch::nn::Linear(8, 8)));
    register_module("conv", nn::Slot(Conv2d(Conv2dOptions(8, 16, 3))));
    register_module("depth_wise", nn::Slot(Conv2d(Conv2dOptions(8, 8, 3).groups(8))));
    register_module("fixed", torch::nn::Linear(64, 64));
    torch::nn::Linear one(64, 64), other(64, 64);
    other->weight.set_data(one->weight);
    register_module("tied", nn::Slot(one));
    register_module("twin", nn::Slot(other));
  }
};
TORCH_MODULE(Net);

class TuneSpaceFile : public testing::Test {
 protected:
  TuneSpace read(const std::string& text) const {
    write_text_file(path_, text);
    return read_tune_space(path_);
  }
  // The refusal of the file, or of its layers in the net.
  std::string refuse(const std::string& text) {
    return refusal([&] { make_groups(*net_, read(text)); });
  }
  TuneGroups groups(const std::string& layers) { return make_groups(*net_, read(kHead + layers)); }

  Net net_;
  test::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "layers.toml";
};

std::vector<Index> ranks_of(const tune::LayerGroup& group) {
  std::vector<Index> ranks;
  for (const auto& value :
       std::get<tune::Categorical>(group.space.parameters().front().domain).choices) {
    ranks.push_back(std::get<Index>(value));
  }
  return ranks;
}

TEST_F(TuneSpaceFile, reads_every_key) {
  const TuneSpace space = read(R"(kind = "layers"
quality = { metric = "perplexity", max_ratio = 1.02 }
search = { name = "evolution", trials = 12, repeats = 3, seed = 7 }
speed = { batch = 2, tokens = 16 }
plan = { error = 0.1 }
[[layers]]
select = { type = "Linear", range = [0, 2] }
params = { rank = [4, 8], mode = "sketched", fit = ["projection", "activation"], terms = [1, 2] }
separate = false
[[layers]]
select = ["a", "b"]
params = { bytes = 0.5 }
)");
  EXPECT_EQ(space.quality.metric, QualityMetric::Perplexity);
  EXPECT_EQ(space.quality.max_ratio, 1.02);
  EXPECT_EQ(std::get<tune::EvolutionMethod>(space.method).generations, 3);
  EXPECT_EQ(space.repeats, 3);
  EXPECT_EQ(space.seed, 7u);
  EXPECT_EQ(space.speed->batch, 2);
  EXPECT_EQ(space.speed->tokens, 16);
  EXPECT_EQ(space.plan_error, 0.1);
  ASSERT_EQ(space.layers.size(), 2u);
  const LayerSpace& first = space.layers[0];
  EXPECT_EQ(first.selector.range->end, 2);
  EXPECT_THAT(first.parameters.ranks, testing::ElementsAre(4, 8));
  EXPECT_THAT(first.parameters.terms, testing::ElementsAre(1, 2));
  EXPECT_THAT(first.parameters.fits,
              testing::ElementsAre(nn::Fit::Projection, nn::Fit::Activation));
  EXPECT_FALSE(first.separate);
  EXPECT_THAT(first.rank_place, HasSubstr("layers.toml:8: layers.params.rank"));
  EXPECT_THAT(space.layers[1].selector.pattern, testing::ElementsAre("a", "b"));
  EXPECT_THAT(space.layers[1].parameters.bytes, testing::ElementsAre(0.5));
}

TEST_F(TuneSpaceFile, has_limits_of_the_mean_quality) {
  const QualityGoal perplexity{.metric = QualityMetric::Perplexity, .max_ratio = 1.1};
  EXPECT_NEAR(perplexity.figure(*perplexity.least_quality(-2)), 1.1 * std::exp(2), 1e-12);
  const QualityGoal loss{.metric = QualityMetric::Loss, .max_ratio = 1.1};
  EXPECT_NEAR(loss.figure(*loss.least_quality(-2)), 2.2, 1e-12);
  const QualityGoal accuracy{.metric = QualityMetric::Accuracy, .max_drop = 0.02};
  EXPECT_NEAR(accuracy.figure(*accuracy.least_quality(0.9)), 0.88, 1e-12);
  EXPECT_FALSE(QualityGoal{}.least_quality(1));
}

TEST_F(TuneSpaceFile, names_the_line_and_the_key_of_what_it_refuses) {
  const std::string head = kHead, layers = "[[layers]]\nselect = \"up\"\n";
  const std::vector<std::pair<std::string, std::string>> cases{
      {head + layers + "parms = \"auto\"\n", "layers.toml:5] Unknown key 'layers.parms'"},
      {head + layers + "params = { ranks = 4 }\n", "Did you mean 'layers.params.rank'"},
      {head + layers + "params = \"best\"\n", "expected \"auto\" or a table, got best"},
      {head + layers + "params = { rank = 0 }\n", "layers.toml:5: layers.params.rank"},
      {head + layers + "params = { rank = [4, 4] }\n", "The value 4 is there twice."},
      {head + layers + "params = { rank = [] }\n", "The list is empty"},
      {head + layers + "params = { rank = 4.5 }\n",
       "expected whole numbers from 1 to 2^30, got 4.5"},
      {head + layers + "params = { rank = 43 }\n", "becomes smaller, at most 42, got 43"},
      {head + layers + "params = { rank = 6, mode = \"sketched\", terms = 2 }\n",
       "a multiple of 2 * terms = 4 for sketched layers, got 6"},
      {head + layers + "params = { rank = 4, terms = 2 }\n", "Only sketched layers have terms"},
      {head + layers + "params = { rank = 4, fit = \"projection\" }\n",
       "expected fits that lowrank layers have (svd, activation), got projection"},
      {head + layers + "params = { rank = 4, mode = \"sketched\", fit = \"svd\" }\n",
       "layers.toml:5: layers.params.fit"},
      {head + layers + "params = { rank = 4, bytes = 0.5 }\n", "The rank is given, too"},
      {head + layers + "params = { bytes = 1.0 }\n", "expected shares above 0 and below 1, got 1"},
      {head + layers + "params = { bytes = nan }\n", "layers.toml:5: layers.params.bytes"},
      {head + layers + "params = { bytes = 0.001 }\n", "expected shares at which a lowrank layer"},
      {head + layers + "params = { mode = 1 }\n", "expected sketched or lowrank, got 1"},
      {head + layers + "separate = 1\n", "expected a TOML boolean for layers.separate"},
      {head + "[[layers]]\nparams = \"auto\"\n", "The key layers.select is missing."},
      {head + "[[layers]]\nselect = 3\n", "layers.toml:4: layers.select"},
      {head + "[[layers]]\nselect = { patern = \"up\" }\n", "Did you mean 'pattern'?"},
      {head + "[[layers]]\nselect = 1979-05-27\n", "expected a TOML value for layers.select"},
      {head + "[[layers]]\nselect = \"upp$\"\n", "The nearest paths: 'up', "},
      {head + layers + "[[layers]]\nselect = \"^(up|down)$\"\n", "Layer 'up' is also selected at"},
      {head + "[[layers]]\nselect = \"small\"\n", "It is too small for a rank of 16."},
      {head + "[[layers]]\nselect = \"fixed\"\n", "It is in no Slot"},
      {head + "[[layers]]\nselect = [\"tied\", \"twin\"]\n", "shares its parameters"},
      {head + "[[layers]]\nselect = \"depth_wise\"\n", "is a depth-wise convolution"},
      {head + "[[layers]]\nselect = \"conv\"\nparams = { rank = 4, fit = \"activation\" }\n",
       "'conv' is a convolution, which has no fit by activations"},
      {head, "There is no [[layers]] table."},
      {head + "layers = 3\n", "expected [[layers]] tables"},
      {head + "search = { trials = 0 }\n" + layers,
       "expected 1 to 100000 for search.trials, got 0"},
      {head + "search = { name = \"best\" }\n" + layers, "expected grid, random, tpe"},
      {head + "search = { name = \"hyperband\", trials = 3 }\n" + layers,
       "search.trials has no effect with search.name = hyperband"},
      {head + "search = { repeats = \"2\" }\n" + layers, "expected a TOML integer"},
      {head + "speed = { batch = 1 }\n" + layers, "With speed, the quality needs a limit"},
      {"kind = \"layers\"\nquality = { metric = \"loss\", max_ratio = nan }\n" + layers,
       "layers.toml:2] expected 0.001 to 1e+06 for quality.max_ratio, got nan"},
      {"kind = \"layers\"\nquality = { metric = \"loss\", max_drop = 0.1 }\n" + layers,
       "The key quality.max_drop has no meaning for loss"},
      {"kind = \"layers\"\nquality = { metric = \"f1\" }\n" + layers,
       "expected perplexity, loss or accuracy"},
      {"kind = \"tree\"\nquality = { metric = \"loss\" }\n" + layers, "expected layers for kind"},
      {"quality = { metric = \"loss\" }\n" + layers, "The key kind is missing."},
      {"kind = ", "This is not valid TOML"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(refuse(text), AllOf(HasSubstr("layers.toml"), HasSubstr(message))) << text;
  }
  EXPECT_FALSE(
      refusal([&] { read_tune_space(folder_.path() / "none.toml"); }, ErrorCategory::NotFound)
          .empty());
}

TEST_F(TuneSpaceFile, gives_each_layer_the_ranks_that_make_it_smaller) {
  const TuneGroups found = groups("[[layers]]\nselect = \"^(up|small|conv|tied|fixed)$\"\n");
  ASSERT_EQ(found.groups.size(), 1u) << "conv has less than 16 ranks, as has small";
  EXPECT_THAT(found.groups[0].layers, testing::ElementsAre("up"));
  EXPECT_THAT(ranks_of(found.groups[0]), testing::ElementsAre(16, 32));
  std::vector<std::string> skipped;
  for (const auto& [path, reason] : found.skipped) skipped.push_back(path);
  EXPECT_THAT(skipped, testing::ElementsAre("small", "conv", "fixed", "tied"));
}

TEST_F(TuneSpaceFile, takes_shares_of_the_bytes_in_the_file) {
  const TuneGroups found = groups(
      "[[layers]]\nselect = \"^up$\"\nparams = { bytes = [0.25], mode = [\"lowrank\"] }\n"
      "[[layers]]\nselect = \"^down$\"\nparams = { bytes = 0.25, mode = \"sketched\" }\n"
      "[[layers]]\nselect = \"^conv$\"\nparams = { bytes = 0.5 }\n");
  ASSERT_EQ(found.groups.size(), 3u);
  const auto numbers = [&](std::size_t i, const LayerShape& shape) {
    const LayerPoint point = read_layer_point(found.groups[i].space.point(0), shape);
    const Index width = point.mode == nn::FactorMode::Sketched ? point.rank / 2 : point.rank;
    return static_cast<double>(width * (shape.inputs + shape.outputs)) /
           static_cast<double>(shape.numbers());
  };
  for (const double share : {numbers(0, {64, 128}), numbers(1, {128, 64})}) {
    EXPECT_LE(share, 0.25);
    EXPECT_GT(share, 0.22) << "one rank more is beyond the share";
  }
  EXPECT_LE(numbers(2, {72, 16, 1, true}), 0.5);
}

TEST_F(TuneSpaceFile, gives_layers_with_one_point_common_ranks) {
  const TuneGroups found = groups(
      "[[layers]]\nselect = \"^(up|down)$\"\nparams = { rank = [8, 40] }\n"
      "separate = false\n");
  ASSERT_EQ(found.groups.size(), 1u);
  EXPECT_FALSE(found.groups[0].separate);
  EXPECT_THAT(found.groups[0].layers, testing::ElementsAre("up", "down"));
  EXPECT_THAT(ranks_of(found.groups[0]), testing::ElementsAre(8, 40));
}

}  // namespace
}  // namespace hone::tuner

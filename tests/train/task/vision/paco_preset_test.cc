// SPDX-License-Identifier: Apache-2.0
// What the presets of part contrast compute, and that each choice of its keys arrives.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "hone/train/paco/model.h"
#include "hone/train/task/vision/vision_config.h"

namespace hone::task {
namespace {

using torch::Tensor;

using Settings = std::vector<std::string>;

paco::PacoModelOptions options_with(const Settings& settings) {
  VisionConfig config = part_contrast_config();
  for (const std::string& setting : settings) set_config(config, setting);
  config = apply_preset(config);
  return model_options(config.paco, config.loss);
}

struct Entropy {
  double loss = 0;
  bool has_gradient = false;  // in the weights of images
};
// The entropy of zero logits of two classes where the mean weight is 2.
Entropy entropy_of(const paco::PacoModelOptions& options) {
  const Tensor weight = at::tensor({1.0, 3.0, 2.0, 2.0}).requires_grad_();
  const Tensor logits = at::zeros({4, 2}, at::kDouble).requires_grad_();
  const Tensor targets = at::tensor({0, 1, 0, 1}, at::kLong);
  const Tensor loss = paco::weighted_cross_entropy(logits, targets, weight, options.ce);
  loss.backward();
  return {loss.item<double>(), weight.grad().defined() && weight.grad().ne(0).any().item<bool>()};
}

TEST(PacoPreset, compat_alone_lets_the_weights_of_images_lower_the_loss) {
  const Entropy compat = entropy_of(options_with({"paco.preset=compat"}));
  EXPECT_NEAR(compat.loss, 0.7624619, 5e-8);  // 1.1 ln 2
  EXPECT_TRUE(compat.has_gradient);
  for (const char* preset : {"paco.preset=exact", "paco.preset=robust"}) {
    const Entropy other = entropy_of(options_with({preset}));
    EXPECT_NEAR(other.loss, 0.6931472, 5e-8) << preset;
    EXPECT_FALSE(other.has_gradient) << preset;
  }
}

// All parts are zero: distances are, too, covariances are ε I, and prototypes are I or not there.
TEST(PacoPreset, compat_has_the_published_loss_of_collapsed_features) {
  const auto losses = [](const char* preset) {
    paco::PacoModelOptions options = options_with({preset});
    options.loss.classes = 80;
    options.loss.dim = 64;
    paco::PacoLoss loss(options.loss);
    const Tensor z = at::zeros({4, 4, 64}, at::kDouble);
    const auto out = loss->forward(z, z, at::arange(4, at::kLong) * 7);
    return std::pair{out.pac.item<double>(), out.soc.item<double>()};
  };
  const auto [pac, soc] = losses("paco.preset=compat");
  EXPECT_NEAR(pac, 0.2, 1e-12) << "the margin";
  const double scale = 1 - 1e-5;
  EXPECT_NEAR(soc, 0.05 * 64 * scale * scale, 1e-9);
  EXPECT_EQ(losses("paco.preset=exact").second, 0);
}

// On the map 0 … 15, row by row: a tenth of four rows is none, and half a window of five is two.
TEST(PacoPreset, compat_suppresses_the_peak_alone_on_a_small_map) {
  const Tensor map = at::arange(16, at::kFloat).view({1, 4, 4});
  const auto peaks = [&](const char* preset) {
    return paco::find_peaks(map, options_with({preset}).sampler).cells.view({4, 2});
  };
  const auto cells = [](std::vector<Index> values) { return at::tensor(values).view({4, 2}); };
  EXPECT_TRUE(peaks("paco.preset=compat").equal(cells({3, 3, 3, 2, 3, 1, 3, 0})));
  EXPECT_TRUE(peaks("paco.preset=exact").equal(cells({3, 3, 3, 0, 0, 3, 0, 0})));
}

using Options = paco::PacoModelOptions;

struct Choice {
  Settings settings;
  std::function<bool(const Options&)> arrived;
};

TEST(PacoConfig, hands_each_choice_on) {
  using namespace paco;
  using Solver = kernels::AssignmentMethod;
  const Choice choices[] = {
      {{"paco.solver=table"}, [](const Options& o) { return o.loss.solver == Solver::Table; }},
      {{"paco.solver=hungarian"},
       [](const Options& o) { return o.loss.solver == Solver::Hungarian; }},
      {{"paco.solver=greedy"}, [](const Options& o) { return o.loss.solver == Solver::Greedy; }},
      {{"paco.solver=sinkhorn"},
       [](const Options& o) { return o.loss.solver == Solver::Sinkhorn; }},
      {{"paco.delta=shrink", "paco.rho=0.5"},
       [](const Options& o) { return o.loss.metric.delta == DeltaMode::Shrink; }},
      {{"paco.match_metric=cosine"},
       [](const Options& o) { return o.loss.match.metric == MatchMetric::Cosine; }},
      {{"paco.soc_metric=stein"},
       [](const Options& o) { return o.loss.soc_metric == SocMetric::Stein; }},
      {{"paco.soc_metric=log_euclidean"},
       [](const Options& o) { return o.loss.soc_metric == SocMetric::LogEuclidean; }},
      {{"paco.prototype=diagonal"},
       [](const Options& o) { return o.loss.prototypes == Prototypes::Diagonal; }},
      {{"paco.prototype=off"},
       [](const Options& o) { return o.loss.prototypes == Prototypes::Off; }},
      {{"paco.ce_weight=off"}, [](const Options& o) { return o.ce.weight == CeWeight::Off; }},
      {{"loss.label_smoothing=0.3"}, [](const Options& o) { return o.ce.label_smoothing == 0.3; }}};
  const Options plain = options_with({"paco.preset=exact"});
  for (const Choice& choice : choices) {
    EXPECT_FALSE(choice.arrived(plain)) << choice.settings[0] << " is no change";
    EXPECT_TRUE(choice.arrived(options_with(choice.settings))) << choice.settings[0];
  }
}

}  // namespace
}  // namespace hone::task

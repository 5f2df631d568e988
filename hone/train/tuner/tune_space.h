// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/train/sketch/convert.h"
#include "hone/train/surgery/layer_select.h"
#include "hone/tune/search/search.h"

namespace hone::tuner {

enum class QualityMetric { Perplexity, Loss, Accuracy };
std::string_view name_of(QualityMetric metric);

// The required quality of a model. The cheapest model within the limit wins. Without a limit, every
// layer is replaced in the way that is best for it alone.
struct QualityGoal {
  QualityMetric metric = QualityMetric::Loss;
  std::optional<double> max_ratio = {};  // perplexity, loss: relative to the unchanged model
  std::optional<double> max_drop = {};   // accuracy: below the unchanged model

  bool has_limit() const { return max_ratio || max_drop; }
  // Least quality within the limit. A quality is a mean, larger is better: minus the nats, or the
  // accuracy.
  std::optional<double> least_quality(double unchanged) const;
  // Returns the perplexity, loss or accuracy for a quality.
  double figure(double quality) const;
};

// One timed run of a model.
struct SpeedRun {
  Index batch = 1;
  std::optional<Index> tokens = {};  // language models only; 128 if not given
};

// The parameters of replacements. A list that is empty leaves the choice to the layer: `ranks` and
// `bytes` to tune::ranks_below_dense, `fits` to the mode.
struct LayerParameters {
  std::vector<Index> ranks = {};
  std::vector<double> bytes = {};  // shares of the dense layer's bytes
  std::vector<nn::FactorMode> modes = {nn::FactorMode::LowRank};
  std::vector<nn::Fit> fits = {};
  std::vector<Index> terms = {};
  bool is_auto = false;  // true: no parameter is given
};

// One [[layers]] table. Places are "layers.toml:7: layers.params.rank".
struct LayerSpace {
  nn::LayerSelector selector;
  LayerParameters parameters;
  bool separate = true;
  std::string select_place, rank_place, bytes_place, fit_place;
};

inline constexpr Index kMostRepeats = 100;

struct TuneSpace {
  QualityGoal quality;
  tune::Method method;
  Index repeats = 1;
  std::uint64_t seed = 0;
  std::optional<SpeedRun> speed = {};  // the timed run; without it, costs are bytes
  // The mean over layers of the squared relative errors of the rank plan that searches start from.
  double plan_error = 0.05;
  std::vector<LayerSpace> layers;
  std::string text;  // text of the file
};

// Reads a space (docs/guide-layers.md lists the keys). Throws Error{InvalidArgument} that names the
// file, the line and the key for an unknown key, a wrong type, a value out of range, and for
// parameters that no layer can combine. Throws Error{NotFound} if there is no file.
TuneSpace read_tune_space(const std::filesystem::path& path);

// Names as in spaces: "lowrank", "svd", ….
std::string_view name_of(nn::FactorMode mode);
std::string_view name_of(nn::Fit fit);
nn::FactorMode mode_of(std::string_view name);
nn::Fit fit_of(std::string_view name);
// Whether layers of this mode have this fit.
bool has_fit(nn::FactorMode mode, nn::Fit fit);

}  // namespace hone::tuner

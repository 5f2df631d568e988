// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/train/sketch/layer_facts.h"
#include "hone/train/tuner/layer_groups.h"

namespace hone::tuner {

// Cost and error of a replaced layer.
struct ReplacedLayer {
  std::string path;
  LayerPoint point;
  Index dense_bytes = 0, bytes = 0;  // in a file
  Index dense_flops = 0, flops = 0;  // per row or output pixel
  double error = 0;                  // of the weight, relative (Frobenius)
  // Relative error of the outputs on the calibration data, if the layer was fitted to those.
  std::optional<double> output_error = {};
};
Json to_json(const ReplacedLayer& layer);

// Fits replacements of a model's layers. Computes the expensive parts once per layer: the moments
// of its inputs, and the factors of the largest rank, from which smaller ranks take the first rows.
class LayerFitter {
 public:
  // Uses the current layers of the model, and does not change them. `calibrate` must run the model
  // on the data for the moments of Fit::Activation. During the call, other modules wrap the layers.
  LayerFitter(torch::nn::Module& model, std::span<const tune::LayerGroup> groups,
              std::uint64_t seed, const std::function<void()>& calibrate);
  LayerFitter(const LayerFitter&) = delete;
  LayerFitter& operator=(const LayerFitter&) = delete;
  ~LayerFitter();

  // Returns the same object for the same layer and point, until the memory of such objects reaches
  // a limit.
  torch::nn::AnyModule fit(const std::string& path, const tune::Point& point);
  ReplacedLayer describe(const std::string& path, const tune::Point& point);

  // Plans ranks for groups of low-rank layers whose parameter is the rank. Minimizes the total of
  // numbers at a mean squared relative error of at most `error`; rank 0 means dense.
  void plan(std::span<tune::LayerGroup> groups, double error) const;

 private:
  struct Source;
  const Source& source(const std::string& path) const;
  torch::nn::AnyModule make(const Source& source, const LayerPoint& point) const;

  std::map<std::string, std::unique_ptr<Source>> sources_;
  std::map<std::string, torch::nn::AnyModule> fitted_;  // by path and point
  Index fitted_bytes_ = 0;
};

}  // namespace hone::tuner

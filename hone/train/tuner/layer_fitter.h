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

// What a replaced layer costs and how near it is.
struct ReplacedLayer {
  std::string path;
  LayerPoint point;
  Index dense_bytes = 0, bytes = 0;  // in a file
  Index dense_flops = 0, flops = 0;  // of a row, or of an output pixel
  double error = 0;                  // of the weight, relative (Frobenius)
  // The relative error of the outputs on the calibration data, where the layer was fitted to those.
  std::optional<double> output_error = {};
};
Json to_json(const ReplacedLayer& layer);

// Fits replacements of a model's layers. What is dear is computed once for each layer: the moments
// of its inputs and the factors of the largest rank, of which smaller ranks take the first rows.
class LayerFitter {
 public:
  // Takes the layers as they are in the model now, and does not change them. `calibrate` runs the
  // model on the data that Fit::Activation takes its moments from; layers are in other modules
  // while it runs.
  LayerFitter(torch::nn::Module& model, std::span<const tune::LayerGroup> groups,
              std::uint64_t seed, const std::function<void()>& calibrate);
  LayerFitter(const LayerFitter&) = delete;
  LayerFitter& operator=(const LayerFitter&) = delete;
  ~LayerFitter();

  // The same object for the same layer and point, as long as the memory that such objects take is
  // limited.
  torch::nn::AnyModule fit(const std::string& path, const tune::Point& point);
  ReplacedLayer describe(const std::string& path, const tune::Point& point);

  // For each layer of a group of low-rank layers whose parameter is the rank, that of the smallest
  // sum of numbers with a mean squared relative error of at most `error`; 0: dense.
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

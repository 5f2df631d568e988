// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hone/train/nn/ops.h"
#include "hone/train/sketch/layer_facts.h"

namespace hone::bench {

// Options of `hone bench layers`. Empty lists take the defaults that are given next to them.
struct BenchLayersOptions {
  std::vector<std::string> shapes = {};  // "4096x4096", inputs x outputs; tutorial 1024x512
  // "512x512:3:1:1:64x64": channels, kernel, stride, padding, image. With convolutions and without
  // shapes, only convolutions are measured.
  std::vector<std::string> convs = {};
  // 1, 64, 256; tutorial 128; reference 16, 64, 256; convolutions 4; pass memory 32, 64, 128, 256.
  std::vector<Index> batches = {};
  std::vector<Index> ranks = {};  // if neither are given: about a quarter of the break-even
  std::vector<Index> terms = {}, low_ranks = {};  // all combinations; the rank is 2 terms low_rank
  std::string grid = {};                  // "", "tutorial", "reference": terms and low ranks
  std::vector<std::string> modes = {};    // sketched and lowrank; for a grid, sketched
  std::vector<std::string> fits = {};     // projection, svd
  std::vector<std::string> passes = {};   // forward
  std::vector<std::string> against = {};  // dense, dense_hone; for the grid reference, also bmm
  bool cold = false;                      // caches are flushed before each run
  std::string matmul = "auto";            // library of hone's f32 products: auto, onednn, mkl
  std::filesystem::path plots = {};       // a folder for charts and tables; empty: none
  // If set, measures the training step of a model of this shape (synthetic_model.h) instead of
  // layers.
  std::string step = {};
  std::uint64_t seed = 0;  // for the dense weight and the signs
  int threads = 0;         // LibTorch threads, for all sides; 0: usable_cpus()
};

// A linear layer or, if `kernel` > 0, a convolution with square kernels.
struct LayerShape {
  Index inputs = 0, outputs = 0;  // features, or channels
  Index kernel = 0, stride = 1, padding = 0, height = 1, width = 1;

  bool is_conv() const { return kernel > 0; }
  // The size of the matrix that is factored.
  nn::FactorSize size(Index rank) const {
    return {is_conv() ? inputs * kernel * kernel : inputs, outputs, rank};
  }
  Index dense_numbers() const { return size(1).inputs * outputs; }
  // Positions of an input and of an output; 1 for a linear layer.
  Index input_pixels() const { return height * width; }
  Index output_pixels() const;
  std::string name() const;
};

struct LayerRank {
  Index rank = 0, terms = 1, low_rank = 0;  // for a sketched layer, rank = 2 terms low_rank
};

struct LayerJob {
  LayerShape shape;
  std::vector<LayerRank> ranks;
  std::vector<Index> batches, memory_batches;
};

struct LayerPlan {
  std::vector<LayerJob> jobs;
  std::vector<std::string> modes, fits, passes, against;
  nn::MatmulBackend matmul = nn::MatmulBackend::Auto;
};

// Plans the work of these options. Throws Error{InvalidArgument} with one sentence for options that
// are unknown, contradictory or out of range, and Error{Resource} for layers that do not fit in
// memory.
LayerPlan plan_layers(const BenchLayersOptions& options);

bool contains(const std::vector<std::string>& names, const std::string& name);

}  // namespace hone::bench

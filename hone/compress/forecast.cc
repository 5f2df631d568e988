// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/forecast.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "hone/compress/compress.h"
#include "hone/core/machine/clock.h"
#include "hone/infer/capture.h"
#include "hone/kernels/linalg/triangular.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::compress {
namespace {

using model_io::LayerProduct;

constexpr Index kProbeTokens = 128;
constexpr Index kDoubleBytes = 8, kFloatBytes = 4;

// Seconds of the work, measured here and now.
struct Speeds {
  double layer = 0;       // of one token in one layer
  double head = 0;        // of one token's logits
  double double_ops = 0;  // multiplications in f64
};

template <class Work>
double seconds_of(const Work& work) {
  const TimeNs begin = steady_clock().now_ns();
  work();
  return static_cast<double>(steady_clock().now_ns() - begin) * 1e-9;
}

Speeds measure_speeds(const model_io::ModelFile& model, Executor& executor) {
  const model_io::Architecture& a = model.architecture();
  const Index tokens = std::min(kProbeTokens, a.context);
  std::vector<std::vector<text::TokenId>> texts(1);
  for (Index i = 0; i < tokens; ++i)
    texts[0].push_back(static_cast<text::TokenId>(i % a.vocab_size));
  infer::LayerWalk walk(model, texts, infer::Activations::Int8, executor);
  walk.advance(0, model);  // touches the pages of the layer
  Speeds speeds;
  const auto count = static_cast<double>(tokens);
  speeds.layer = seconds_of([&] { walk.advance(0, model); }) / count;
  const Index rows = std::min(walk.logit_rows(), tokens);
  walk.logits(0, rows);
  speeds.head = seconds_of([&] { walk.logits(0, rows); }) / static_cast<double>(rows);
  constexpr Index kSide = 384;
  const std::vector<double> m(kSide * kSide, 1e-3);
  std::vector<double> c(m.size());
  const auto multiply = [&] {
    kernels::subtract_product({.a = m.data(),
                               .a_stride = kSide,
                               .b = m.data(),
                               .b_stride = kSide,
                               .c = c.data(),
                               .c_stride = kSide,
                               .rows = kSide,
                               .cols = kSide,
                               .depth = kSide},
                              executor);
  };
  multiply();
  speeds.double_ops = seconds_of(multiply) / std::pow(kSide, 3);
  return speeds;
}

class Forecaster {
 public:
  Forecaster(const model_io::ModelFile& model, const Recipe& recipe, Executor& executor)
      : model_(model),
        recipe_(recipe),
        a_(model.architecture()),
        passes_(make_passes(recipe)),
        speeds_(measure_speeds(model, executor)) {}

  Index bytes(const Output& output) const;
  Index peak(Index file_bytes) const;
  double seconds(Index card_tokens) const;

 private:
  double layers() const { return static_cast<double>(a_.layers); }
  double calibration_tokens() const { return static_cast<double>(recipe_.calib_tokens); }

  const model_io::ModelFile& model_;
  const Recipe& recipe_;
  const model_io::Architecture& a_;
  std::vector<std::unique_ptr<Pass>> passes_;
  Speeds speeds_;
};

Index Forecaster::bytes(const Output& output) const {
  constexpr double kHalfBits = 16;
  std::vector<PlannedMatrix> matrices;
  for (const model_io::NamedMatrix& tensor : model_.tensors()) {
    const StoredMatrix& matrix = tensor.matrix;
    const double bits = 8.0 * static_cast<double>(matrix.stored_bytes()) /
                        static_cast<double>(matrix.rows * matrix.cols);
    matrices.push_back({.tensor = &tensor,
                        .layer = model_io::layer_of(tensor.name),
                        .rows = matrix.rows,
                        .cols = matrix.cols,
                        .bits = bits});
  }
  for (const std::unique_ptr<Pass>& pass : passes_) pass->plan(matrices, a_);
  Index total = 0;
  for (const PlannedMatrix& matrix : matrices) {
    const bool has_budget = recipe_.allocate.bits > 0 && !matrix.tensor->is_vector;
    PlannedMatrix counted = matrix;
    if (has_budget) counted.bits = std::min(counted.bits, recipe_.allocate.bits);
    if (!output.codes) counted.bits = std::max(counted.bits, kHalfBits);
    total += counted.bytes(output.masks);
  }
  total += output.overhead;
  const auto size = static_cast<Index>(recipe_.allocate.size_mb * 1e6);
  return size > 0 ? std::min(size, model_.file_bytes()) : total;
}

// The largest of the phases: the text with the moments and factors of one layer, or both models
// side by side.
Index Forecaster::peak(Index file_bytes) const {
  Index moments = 0, largest = 0, layer_weights = 0;
  for (const LayerProduct& product : model_io::layer_products(a_)) {
    moments += kDoubleBytes * product.inputs * product.inputs;
    largest = std::max(largest, kDoubleBytes * product.inputs * product.inputs);
    layer_weights += kFloatBytes * product.inputs * product.outputs;
  }
  const Index stream = kFloatBytes * recipe_.calib_tokens * a_.hidden_size;
  const Index calibration = needs_calibration(recipe_)
                                ? stream + moments + 3 * largest + 3 * layer_weights + file_bytes
                                : layer_weights + file_bytes;
  return std::max(calibration, model_.file_bytes() + file_bytes + (Index{64} << 20));
}

double Forecaster::seconds(Index card_tokens) const {
  double seconds = 0;
  const double pass_over_model = speeds_.layer * layers() + speeds_.head;
  for (const std::unique_ptr<Pass>& pass : passes_) {
    if (pass->needs_inputs())  // the text is read once before a layer changes and once after
      seconds += 2 * calibration_tokens() * speeds_.layer * layers();
    for (Index layer = 0; layer < a_.layers; ++layer)
      for (const LayerProduct& product : model_io::layer_products(a_, layer))
        seconds += pass->multiplications(product) * speeds_.double_ops;
    seconds += pass->other_seconds(a_.layers, speeds_.layer, speeds_.head);
  }
  const bool measures_once = recipe_.gate.on_fail == OnFail::Keep;
  const auto cards = measures_once ? 1.0 : static_cast<double>(passes_.size());
  seconds += cards * 2 * static_cast<double>(card_tokens) * pass_over_model;
  if (recipe_.allocate.is_wanted()) {
    // Each of four groups of each layer is measured through the layers behind it.
    const double groups = 4 * layers();
    seconds += static_cast<double>(recipe_.allocate.tokens) * groups *
               (speeds_.layer * layers() / 2 + speeds_.head);
  }
  if (needs_calibration(recipe_) && recipe_.calib_data.empty())
    seconds +=
        2 * calibration_tokens() * pass_over_model;  // in a batch, which is slower than reading
  return seconds;
}

}  // namespace

Forecast forecast(const model_io::ModelFile& original, const Recipe& recipe, const Output& output,
                  Index card_tokens, Executor& executor) {
  const Forecaster forecaster(original, recipe, executor);
  Forecast out;
  out.file_bytes = forecaster.bytes(output);
  out.peak_bytes = forecaster.peak(out.file_bytes);
  out.minutes = forecaster.seconds(card_tokens) / 60;
  return out;
}

}  // namespace hone::compress

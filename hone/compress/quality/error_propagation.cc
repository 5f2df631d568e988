// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/quality/error_propagation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/core/philox.h"
#include "hone/core/progress.h"
#include "hone/infer/capture.h"

namespace hone::compress {
namespace {

using Stream = std::vector<float>;
using PerText = std::vector<double>;

constexpr double kNoise = 0.01;  // of the size of a token's stream

Stream copy_of(const infer::LayerWalk& walk) {
  return {walk.hidden().begin(), walk.hidden().end()};
}

class Propagation {
 public:
  Propagation(const model_io::ModelFile& original, const model_io::ModelFile& changed,
              const std::vector<std::vector<text::TokenId>>& texts, Executor& executor)
      : original_(original),
        changed_(changed),
        width_(original.architecture().hidden_size),
        walk_(original, texts, infer::Activations::Int8, executor) {
    for (const auto& text : texts) lengths_.push_back(std::ssize(text));
    exact_ = copy_of(walk_);
    rough_ = copy_of(infer::LayerWalk(changed, texts, infer::Activations::Int8, executor));
    bounds_ = predicted_ = norms(exact_, rough_, exact_);
  }

  LayerError embedding() const {
    const double error = mean_of(bounds_);
    return {.local = error, .predicted = error, .bound = error, .measured = error};
  }
  LayerError step(Index layer);

 private:
  // The relative size of a - b for each text; `scale` is the stream that it is relative to.
  PerText norms(const Stream& a, const Stream& b, const Stream& scale) const;
  // √(mean of squares over tokens).
  double mean_of(const PerText& norms) const;
  Stream through(Index layer, const model_io::ModelFile& weights, const Stream& from) {
    walk_.set_hidden(from);
    walk_.advance(layer, weights);
    return copy_of(walk_);
  }
  Stream with_noise(Index layer) const;

  const model_io::ModelFile& original_;
  const model_io::ModelFile& changed_;
  Index width_;
  std::vector<Index> lengths_;
  infer::LayerWalk walk_;
  Stream exact_, rough_;  // h and ĥ
  PerText predicted_, bounds_;
};

PerText Propagation::norms(const Stream& a, const Stream& b, const Stream& scale) const {
  PerText out;
  std::size_t at = 0;
  for (const Index length : lengths_) {
    double sum = 0;
    for (Index token = 0; token < length; ++token) {
      double error = 0, size = 0;
      for (Index i = 0; i < width_; ++i, ++at) {
        error += std::pow(static_cast<double>(a[at]) - static_cast<double>(b[at]), 2);
        size += std::pow(static_cast<double>(scale[at]), 2);
      }
      sum += size > 0 ? error / size : 0;
    }
    out.push_back(std::sqrt(sum / static_cast<double>(length)));
  }
  return out;
}

double Propagation::mean_of(const PerText& norms) const {
  double sum = 0, tokens = 0;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    sum += norms[i] * norms[i] * static_cast<double>(lengths_[i]);
    tokens += static_cast<double>(lengths_[i]);
  }
  return std::sqrt(sum / tokens);
}

// The original's stream with a random error of the same relative size for every token.
Stream Propagation::with_noise(Index layer) const {
  PhiloxStream random(static_cast<std::uint64_t>(layer));
  Stream out = exact_;
  for (auto token = out.begin(); token != out.end(); token += width_) {
    double size = 0;
    for (auto x = token; x != token + width_; ++x)
      size += static_cast<double>(*x) * static_cast<double>(*x);
    const double scale = kNoise * std::sqrt(size / static_cast<double>(width_));
    for (auto x = token; x != token + width_; ++x) {
      const double normal = std::sqrt(-2 * std::log(random.uniform_double())) *
                            std::cos(2 * std::numbers::pi * random.uniform_double());
      *x += static_cast<float>(scale * normal);
    }
  }
  return out;
}

LayerError Propagation::step(Index layer) {
  const Stream noisy = with_noise(layer);
  const PerText noise = norms(noisy, exact_, exact_), before = norms(rough_, exact_, exact_);
  const Stream next = through(layer, original_, exact_);
  const PerText noise_behind = norms(through(layer, original_, noisy), next, next);
  const PerText local = norms(through(layer, changed_, exact_), next, next);
  const Stream carried = through(layer, original_, rough_);
  Stream rough_next = through(layer, changed_, rough_);
  const PerText carried_behind = norms(carried, next, next),
                added = norms(rough_next, carried, next);
  LayerError out{.layer = layer, .local = mean_of(local)};
  out.gain = mean_of(noise_behind) / mean_of(noise);
  out.largest_gain = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] > 0) out.largest_gain = std::max(out.largest_gain, carried_behind[i] / before[i]);
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    predicted_[i] = std::hypot(out.gain * predicted_[i], local[i]);
    bounds_[i] = out.largest_gain * bounds_[i] + added[i];
  }
  exact_ = next;
  rough_ = std::move(rough_next);
  out.predicted = mean_of(predicted_);
  out.bound = mean_of(bounds_);
  out.measured = mean_of(norms(rough_, exact_, exact_));
  return out;
}

}  // namespace

std::vector<LayerError> propagate_errors(const model_io::ModelFile& original,
                                         const model_io::ModelFile& changed,
                                         const std::vector<std::vector<text::TokenId>>& texts,
                                         Executor& executor) {
  const Index layers = original.architecture().layers;
  HONE_TRACE_ZONE("propagate errors", {"layers", layers});
  HONE_CHECK(changed.architecture().layers == layers, "propagate errors", concat(layers, " layers"),
             changed.architecture().layers);
  HONE_CHECK(changed.architecture().hidden_size == original.architecture().hidden_size,
             "propagate errors",
             concat("a stream of ", original.architecture().hidden_size, " values"),
             changed.architecture().hidden_size);
  Propagation run(original, changed, texts, executor);
  Progress progress("measuring errors of layers", layers, "layers");
  std::vector<LayerError> errors{run.embedding()};
  for (Index layer = 0; layer < layers; ++layer) {
    errors.push_back(run.step(layer));
    progress.update(layer + 1);
  }
  return errors;
}

Json to_json(const std::vector<LayerError>& errors) {
  Json out = Json::array();
  for (const LayerError& error : errors) {
    out.push_back({{"layer", error.layer < 0 ? Json("embedding") : Json(error.layer)},
                   {"local", error.local},
                   {"predicted", error.predicted},
                   {"bound", error.bound},
                   {"measured", error.measured},
                   {"gain", error.gain},
                   {"largest_gain", error.largest_gain}});
  }
  return out;
}

}  // namespace hone::compress

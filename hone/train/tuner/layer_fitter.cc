// SPDX-License-Identifier: Apache-2.0
#include "hone/train/tuner/layer_fitter.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/core/check.h"
#include "hone/train/sketch/convert.h"
#include "hone/train/sketch/sketched_conv.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/tune/search/rank_plan.h"

namespace hone::tuner {
namespace {

using nn::FactorMode;
using nn::Fit;
using torch::Tensor;
using torch::nn::AnyModule;

constexpr Index kMostMomentBytes = Index{1} << 30;  // gathered in one pass over the data
constexpr Index kMostFittedBytes = Index{1} << 30;  // kept for when a point comes again

// A layer that adds its inputs to their moments.
struct RecordedLayerImpl final : torch::nn::Module {
  RecordedLayerImpl(AnyModule inner, sketch::InputMoments* moments)
      : inner_(std::move(inner)), moments_(moments) {}
  Tensor forward(const Tensor& x) {
    moments_->add(x);
    return inner_.forward(x);
  }

 private:
  AnyModule inner_;
  sketch::InputMoments* moments_;
};

// Factors of the largest rank that is asked for.
struct Factors {
  sketch::FactorPair pair;           // of a linear layer
  nn::SketchedConv2d conv{nullptr};  // of a convolution
  std::vector<double> tails;         // by rank: the relative error, squared

  bool is_there() const { return !tails.empty(); }
};

// The squared relative error of a balanced fit, by rank. The squared norms of the rows of b are the
// singular values: of the weight, or of it times the factor of the inputs' moments; the sum of
// their squares is `total`. `rows` are those of one group after another.
std::vector<double> tails_of(const Tensor& rows, Index groups, double total) {
  const Tensor kept = rows.detach()
                          .to(at::kDouble)
                          .square()
                          .sum(1)
                          .square()
                          .view({groups, -1})
                          .sum(0)
                          .cumsum(0)
                          .contiguous();
  std::vector<double> tails{1};
  for (Index i = 0; i < kept.size(0); ++i) {
    tails.push_back(std::max(0.0, 1 - kept.data_ptr<double>()[i] / total));
  }
  return tails;
}

double squares_of(const Tensor& tensor) {
  const auto squares = tensor.detach().to(at::kDouble).square().sum().item<double>();
  return squares > 0 ? squares : 1;
}

// E|x W|² / rows of the moments.
double output_squares(const Tensor& weight, const sketch::InputMoments& inputs) {
  const Tensor wide = weight.detach().to(at::kDouble);
  const auto squares =
      (at::mm(wide, inputs.second) * wide).sum().item<double>() / static_cast<double>(inputs.rows);
  return squares > 0 ? squares : 1;
}

Index bytes_of(const torch::nn::Module& module) {
  Index bytes = 0;
  for (const Tensor& tensor : module.parameters()) bytes += static_cast<Index>(tensor.nbytes());
  for (const Tensor& tensor : module.buffers()) bytes += static_cast<Index>(tensor.nbytes());
  return bytes;
}

nn::SketchedConv2d cut(const nn::SketchedConv2dImpl& full, Index rank) {
  nn::SketchedConv2dOptions options = full.options();
  const Tensor& first = full.first();
  const Tensor rows =
      first.reshape({options.groups, options.rank, first.size(1), first.size(2), first.size(3)})
          .slice(1, 0, rank)
          .reshape({options.groups * rank, first.size(1), first.size(2), first.size(3)});
  options.rank = rank;
  nn::SketchedConv2dWeights weights;
  weights.first = rows;
  weights.second = full.second().slice(1, 0, rank).contiguous();
  weights.bias = full.bias();
  nn::SketchedConv2d out(options, weights);
  out->train(full.is_training());
  return out;
}

}  // namespace

struct LayerFitter::Source {
  std::string path;
  std::shared_ptr<torch::nn::Module> module;
  AnyModule layer;
  LayerShape shape;
  std::uint64_t seed = 0;
  Index low_rank = 0, activation_rank = 0;  // the largest ones of low-rank layers with these fits
  bool keeps_moments = false, needs_moments = false;
  sketch::InputMoments moments;
  Factors plain, activation;

  const torch::nn::LinearImpl& linear() const { return *module->as<torch::nn::LinearImpl>(); }
  const torch::nn::Conv2dImpl& conv() const { return *module->as<torch::nn::Conv2dImpl>(); }
  Tensor weight() const { return shape.is_conv ? conv().weight : linear().weight; }

  // Notes what the points of a space need.
  void require(const tune::Space& space) {
    for (Index i = 0; i < space.count().value(); ++i) {
      const LayerPoint point = read_layer_point(space.point(i), shape);
      const bool is_low_rank = point.mode == FactorMode::LowRank;
      if (point.fit == Fit::Activation) {
        needs_moments = true;
        keeps_moments = keeps_moments || !is_low_rank;
      }
      if (!is_low_rank) continue;
      Index& most = point.fit == Fit::Activation ? activation_rank : low_rank;
      most = std::max(most, point.rank);
    }
  }

  void factor() {
    if (low_rank > 0 && shape.is_conv) {
      plain.conv = nn::from_conv(conv(), {.rank = low_rank});
      // Outputs are the rows of b, [outputs, rank] for each group.
      const Tensor b = plain.conv->second().reshape({shape.groups, shape.outputs, low_rank});
      plain.tails = tails_of(b.transpose(1, 2).reshape({shape.groups * low_rank, shape.outputs}),
                             shape.groups, squares_of(weight()));
    } else if (low_rank > 0) {
      plain.pair = sketch::fit_svd(weight(), low_rank);
      plain.tails = tails_of(plain.pair.second, 1, squares_of(weight()));
    }
    if (activation_rank > 0) {
      activation.pair = sketch::fit_svd(weight(), activation_rank, &moments);
      activation.tails = tails_of(activation.pair.second, 1, output_squares(weight(), moments));
    }
    if (!keeps_moments) moments.second = Tensor();
  }

  const Factors& factors(Fit fit) const { return fit == Fit::Activation ? activation : plain; }
};

LayerFitter::LayerFitter(torch::nn::Module& model, std::span<const tune::LayerGroup> groups,
                         std::uint64_t seed, const std::function<void()>& calibrate) {
  const torch::NoGradGuard no_grad;
  std::vector<Source*> order;
  for (const tune::LayerGroup& group : groups) {
    for (const std::string& path : group.layers) {
      const nn::Layer layer = nn::find_layer(model, path);
      auto source = std::make_unique<Source>();
      source->path = path;
      source->module = layer.module;
      source->shape = shape_of(*layer.module);
      source->seed = seed + order.size() + 1;
      source->require(group.space);
      if (layer.slot != nullptr) source->layer = layer.slot->layer();
      order.push_back(source.get());
      sources_.emplace(path, std::move(source));
    }
  }
  const nn::Snapshot before = nn::snapshot(model);
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    Index bytes = 0;
    bool records = false;
    for (; end < order.size(); ++end) {
      Source& source = *order[end];
      if (!source.needs_moments) continue;
      bytes += source.shape.inputs * source.shape.inputs * Index{sizeof(double)};
      if (records && bytes > kMostMomentBytes) break;
      records = true;
      nn::replace(model, source.path,
                  AnyModule(std::make_shared<RecordedLayerImpl>(source.layer, &source.moments)));
    }
    try {
      if (records) calibrate();
    } catch (...) {
      nn::restore(before);
      throw;
    }
    nn::restore(before);
    for (; begin < end; ++begin) {
      Source& source = *order[begin];
      HONE_REQUIRE(!source.needs_moments || source.moments.rows > 0, "tune",
                   concat("Layer ", source.path, " has no inputs in the data."));
      source.factor();
    }
  }
}

LayerFitter::~LayerFitter() = default;

const LayerFitter::Source& LayerFitter::source(const std::string& path) const {
  return *sources_.at(path);
}

AnyModule LayerFitter::make(const Source& source, const LayerPoint& point) const {
  const Factors& factors = source.factors(point.fit);
  const bool is_low_rank = point.mode == FactorMode::LowRank;
  if (source.shape.is_conv) {
    if (is_low_rank) return AnyModule(cut(*factors.conv, point.rank));
    return AnyModule(nn::from_conv(source.conv(), {.mode = point.mode,
                                                   .fit = point.fit,
                                                   .rank = point.rank,
                                                   .terms = point.terms,
                                                   .seed = source.seed}));
  }
  return AnyModule(nn::from_linear(
      source.linear(), {.mode = point.mode,
                        .fit = point.fit,
                        .rank = point.rank,
                        .terms = point.terms,
                        .seed = source.seed,
                        .inputs = point.fit == Fit::Activation ? &source.moments : nullptr,
                        .factors = is_low_rank ? &factors.pair : nullptr}));
}

AnyModule LayerFitter::fit(const std::string& path, const tune::Point& point) {
  const std::string key = concat(path, " ", tune::to_json(point).dump());
  if (const auto found = fitted_.find(key); found != fitted_.end()) return found->second;
  const torch::NoGradGuard no_grad;
  const Source& own = source(path);
  AnyModule layer = make(own, read_layer_point(point, own.shape));
  if (fitted_bytes_ > kMostFittedBytes) {
    fitted_.clear();
    fitted_bytes_ = 0;
  }
  fitted_bytes_ += bytes_of(*layer.ptr());
  fitted_.emplace(key, layer);
  return layer;
}

ReplacedLayer LayerFitter::describe(const std::string& path, const tune::Point& point) {
  const torch::NoGradGuard no_grad;
  const Source& own = source(path);
  ReplacedLayer out{.path = path, .point = read_layer_point(point, own.shape)};
  const AnyModule layer = fit(path, point);
  nn::LayerFacts facts;
  Tensor effective;
  if (auto* conv = layer.ptr()->as<nn::SketchedConv2dImpl>()) {
    facts = conv->facts();
    effective = conv->effective_weight();
  } else {
    auto* linear = layer.ptr()->as<nn::FactoredLinearImpl>();
    facts = linear->facts();
    effective = linear->effective_weight();
  }
  const Tensor weight = own.weight().detach();
  out.dense_bytes = bytes_of(*own.module);
  out.bytes = facts.stored_bytes;
  out.dense_flops = 2 * own.shape.numbers();
  out.flops = facts.forward_flops;
  out.error = std::sqrt((weight - effective).to(at::kDouble).square().sum().item<double>() /
                        squares_of(weight));
  if (out.point.fit == Fit::Activation && out.point.mode == FactorMode::LowRank) {
    out.output_error = std::sqrt(own.activation.tails[static_cast<std::size_t>(out.point.rank)]);
  }
  return out;
}

void LayerFitter::plan(std::span<tune::LayerGroup> groups, double error) const {
  std::vector<tune::LayerCurve> curves;
  std::vector<Index*> places;
  for (tune::LayerGroup& group : groups) {
    const auto& parameters = group.space.parameters();
    if (parameters.front().name != "rank") continue;
    const LayerPoint first =
        read_layer_point(group.space.point(0), source(group.layers.front()).shape);
    if (first.mode != FactorMode::LowRank) continue;
    group.planned_ranks.assign(group.layers.size(), 0);
    for (std::size_t i = 0; i < group.layers.size(); ++i) {
      const Source& own = source(group.layers[i]);
      const auto& tails = own.factors(first.fit).tails;
      tune::LayerCurve curve;
      curve.name = own.path;
      curve.options.push_back({0, static_cast<double>(own.shape.numbers()), 0});
      for (const tune::Value& value :
           std::get<tune::Categorical>(parameters.front().domain).choices) {
        const Index rank = std::get<Index>(value);
        const Index numbers = own.shape.groups * rank * (own.shape.inputs + own.shape.outputs);
        curve.options.push_back(
            {rank, static_cast<double>(numbers), tails[static_cast<std::size_t>(rank)]});
      }
      curves.push_back(std::move(curve));
      places.push_back(&group.planned_ranks[i]);
    }
  }
  if (curves.empty()) return;
  const auto found = tune::plan_ranks(curves, error * static_cast<double>(curves.size()));
  for (std::size_t i = 0; found && i < places.size(); ++i) *places[i] = found->ranks[i];
}

Json to_json(const ReplacedLayer& layer) {
  return {{"layer", layer.path},
          {"mode", std::string(name_of(layer.point.mode))},
          {"fit", std::string(name_of(layer.point.fit))},
          {"rank", layer.point.rank},
          {"terms", layer.point.mode == FactorMode::Sketched ? Json(layer.point.terms) : Json()},
          {"dense_bytes", layer.dense_bytes},
          {"bytes", layer.bytes},
          {"dense_flops", layer.dense_flops},
          {"flops", layer.flops},
          {"error", layer.error},
          {"output_error", layer.output_error ? Json(*layer.output_error) : Json()}};
}

}  // namespace hone::tuner

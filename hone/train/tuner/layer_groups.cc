// SPDX-License-Identifier: Apache-2.0
#include "hone/train/tuner/layer_groups.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <variant>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/tune/search/rank_plan.h"

namespace hone::tuner {
namespace {

using nn::FactorMode;
using nn::Fit;

bool has_shape(const torch::nn::Module& module) {
  return module.as<torch::nn::LinearImpl>() != nullptr ||
         module.as<torch::nn::Conv2dImpl>() != nullptr;
}

// The largest rank whose weights take at most this share of the dense layer's bytes; at least 0.
Index rank_of_share(double share, const LayerShape& shape, FactorMode mode, Index terms) {
  const auto in = static_cast<double>(shape.inputs), out = static_cast<double>(shape.outputs);
  // A linear layer's file has half of both sketched factors, a convolution's the first one.
  const double stored = mode == FactorMode::LowRank ? in + out
                        : shape.is_conv             ? in
                                                    : (in + out) / 2;
  const auto rank = static_cast<Index>(std::floor(share * in * out / stored + 1e-9));
  return mode == FactorMode::Sketched ? rank - rank % (2 * terms) : rank;
}

std::vector<Index> terms_of(const LayerParameters& parameters) {
  return parameters.terms.empty() ? std::vector<Index>{1} : parameters.terms;
}

// A layer with the parameters of its replacements.
class LayerChoices {
 public:
  LayerChoices(const LayerSpace& space, const nn::Layer& layer)
      : space_(space), path_(layer.path), shape_(shape_of(*layer.module)) {
    check_fits();
    const LayerParameters& parameters = space.parameters;
    for (const Index rank : parameters.ranks) {
      HONE_CHECK(rank <= shape_.largest_rank(), space.rank_place,
                 concat("ranks at which layer ", quote_name(path_), " becomes smaller, at most ",
                        shape_.largest_rank()),
                 rank);
    }
    for (const double share : parameters.bytes) check_share(share);
    if (parameters.ranks.empty() && parameters.bytes.empty()) {
      ranks_ = automatic_ranks();
    } else {
      ranks_ = parameters.ranks;
    }
  }

  const std::string& path() const { return path_; }
  bool is_conv() const { return shape_.is_conv; }
  // Empty where the layer is too small for one, or the share of bytes is given.
  const std::vector<Index>& ranks() const { return ranks_; }
  bool is_too_small() const { return ranks_.empty() && space_.parameters.bytes.empty(); }

  tune::Space space(const std::vector<Index>& ranks) const {
    const LayerParameters& own = space_.parameters;
    std::vector<tune::Parameter> out;
    const auto add = [&out](const char* name, const auto& values, const auto& value_of) {
      tune::Categorical domain;
      for (const auto& value : values) domain.choices.push_back(value_of(value));
      out.push_back({name, std::move(domain)});
    };
    const auto same = [](const auto& value) { return tune::Value(value); };
    const auto named = [](const auto& value) { return tune::Value(std::string(name_of(value))); };
    if (own.bytes.empty()) {
      add("rank", ranks, same);
    } else {
      add("bytes", own.bytes, same);
    }
    add("mode", own.modes, named);
    if (const std::vector<Fit> fits = fits_of(); !fits.empty()) add("fit", fits, named);
    if (!own.terms.empty()) add("terms", own.terms, same);
    return tune::Space(std::move(out));
  }

 private:
  std::vector<Fit> fits_of() const {
    if (!space_.parameters.is_auto) return space_.parameters.fits;
    return shape_.is_conv ? std::vector<Fit>{Fit::Svd}
                          : std::vector<Fit>{Fit::Activation, Fit::Svd};
  }

  void check_fits() const {
    const auto& fits = space_.parameters.fits;
    HONE_REQUIRE(
        !shape_.is_conv || std::ranges::find(fits, Fit::Activation) == fits.end(), space_.fit_place,
        concat("Layer ", quote_name(path_), " is a convolution, which has no fit by activations."));
  }

  void check_share(double share) const {
    for (const FactorMode mode : space_.parameters.modes) {
      for (const Index terms : terms_of(space_.parameters)) {
        const Index rank = rank_of_share(share, shape_, mode, terms);
        HONE_CHECK(rank >= 1 && rank <= shape_.largest_rank(), space_.bytes_place,
                   concat("shares at which a ", name_of(mode), " layer ", quote_name(path_),
                          " has a rank of 1 to ", shape_.largest_rank()),
                   concat(share, ", rank ", rank));
      }
    }
  }

  std::vector<Index> automatic_ranks() const {
    std::vector<Index> ranks = tune::ranks_below_dense(shape_.inputs, shape_.outputs);
    const auto& modes = space_.parameters.modes;
    if (std::ranges::find(modes, FactorMode::Sketched) == modes.end()) return ranks;
    std::erase_if(ranks, [&](Index rank) {
      return std::ranges::any_of(terms_of(space_.parameters),
                                 [rank](Index terms) { return rank % (2 * terms) != 0; });
    });
    return ranks;
  }

  const LayerSpace& space_;
  std::string path_;
  LayerShape shape_;
  std::vector<Index> ranks_;
};

std::vector<nn::Layer> select(torch::nn::Module& model, const LayerSpace& space) {
  try {
    return nn::select_layers(model, space.selector);
  } catch (const Error& error) {
    throw Error(error.category(), concat(error.what(), " (", space.select_place, ")"));
  }
}

// Parameters of a layer's module that other modules share.
bool is_tied(const std::vector<std::vector<std::string>>& tied, const std::string& path) {
  return std::ranges::any_of(tied, [&path](const std::vector<std::string>& names) {
    return std::ranges::any_of(
        names, [&path](const std::string& name) { return name.starts_with(path + "."); });
  });
}

// Why a selected layer cannot be replaced; empty if it can.
std::string obstacle_of(const nn::Layer& layer, const std::vector<std::vector<std::string>>& tied) {
  if (!has_shape(*layer.module)) {
    return concat("It is a ", nn::type_of(*layer.module), ", neither Linear nor Conv2d.");
  }
  if (layer.slot == nullptr) {
    return "It is in no Slot, so that its owner cannot call another layer.";
  }
  return is_tied(tied, layer.path) ? "Another layer shares its parameters." : "";
}

void add_groups(TuneGroups& out, const LayerSpace& space,
                const std::vector<LayerChoices>& choices) {
  if (space.separate) {
    for (const LayerChoices& one : choices) {
      out.groups.push_back({{one.path()}, one.space(one.ranks())});
    }
    return;
  }
  std::vector<Index> common = choices.front().ranks();
  std::vector<std::string> paths;
  for (const LayerChoices& one : choices) {
    std::erase_if(common, [&one](Index rank) {
      return std::ranges::find(one.ranks(), rank) == one.ranks().end();
    });
    paths.push_back(one.path());
  }
  const auto conv = std::ranges::find_if(choices, &LayerChoices::is_conv);
  const LayerChoices& example = conv == choices.end() ? choices.front() : *conv;
  HONE_REQUIRE(!common.empty() || !space.parameters.bytes.empty(), space.select_place,
               "With separate = false, no rank is allowed for all of these layers at once.");
  out.groups.push_back({std::move(paths), example.space(common), /*separate=*/false});
}

}  // namespace

LayerShape shape_of(const torch::nn::Module& module) {
  if (const auto* linear = module.as<torch::nn::LinearImpl>()) {
    return {linear->weight.size(1), linear->weight.size(0)};
  }
  const auto* conv = module.as<torch::nn::Conv2dImpl>();
  HONE_CHECK(conv != nullptr, "tune", "a Linear or Conv2d", nn::type_of(module));
  const torch::Tensor& weight = conv->weight;
  const Index groups = conv->options.groups();
  return {weight.numel() / weight.size(0), weight.size(0) / groups, groups, true};
}

LayerPoint read_layer_point(const tune::Point& point, const LayerShape& shape) {
  const auto find = [&point](std::string_view name) -> const tune::Value* {
    for (const auto& [own, value] : point.values) {
      if (own == name) return &value;
    }
    return nullptr;
  };
  LayerPoint out;
  out.mode = mode_of(std::get<std::string>(point.at("mode")));
  const tune::Value* fit = find("fit");
  out.fit = fit != nullptr                     ? fit_of(std::get<std::string>(*fit))
            : out.mode == FactorMode::Sketched ? Fit::Projection
                                               : Fit::Svd;
  if (const tune::Value* terms = find("terms")) out.terms = std::get<Index>(*terms);
  const tune::Value* share = find("bytes");
  out.rank = share != nullptr ? rank_of_share(std::get<double>(*share), shape, out.mode, out.terms)
                              : std::get<Index>(point.at("rank"));
  return out;
}

TuneGroups make_groups(torch::nn::Module& model, const TuneSpace& space) {
  TuneGroups out;
  const auto tied = nn::tied_parameters(model);
  std::map<std::string, const LayerSpace*> owners;
  for (const LayerSpace& own : space.layers) {
    std::vector<LayerChoices> choices;
    const std::size_t skipped = out.skipped.size();
    for (const nn::Layer& layer : select(model, own)) {
      const bool holds_others = !layer.module->children().empty();
      if (holds_others && !has_shape(*layer.module)) continue;  // its layers are there, too
      const auto [owner, is_new] = owners.emplace(layer.path, &own);
      HONE_REQUIRE(is_new, own.select_place,
                   concat("Layer ", quote_name(layer.path), " is also selected at ",
                          owner->second->select_place, "."));
      std::string obstacle = obstacle_of(layer, tied);
      if (obstacle.empty()) {
        const LayerShape shape = shape_of(*layer.module);
        HONE_REQUIRE(shape.groups == 1 || shape.largest_rank() >= 1, own.select_place,
                     concat("Layer ", quote_name(layer.path),
                            " is a depth-wise convolution, which factors cannot make smaller."));
        LayerChoices choice(own, layer);
        if (!choice.is_too_small()) {
          choices.push_back(std::move(choice));
          continue;
        }
        obstacle = "It is too small for a rank of 16.";
      }
      out.skipped.emplace_back(layer.path, std::move(obstacle));
    }
    if (choices.empty()) {
      const std::string reason = out.skipped.size() == skipped
                                     ? std::string("They only hold other layers.")
                                     : concat("Layer ", quote_name(out.skipped[skipped].first),
                                              ": ", out.skipped[skipped].second);
      fail_argument(own.select_place,
                    concat("None of the selected layers can be replaced. ", reason));
    }
    add_groups(out, own, choices);
  }
  return out;
}

}  // namespace hone::tuner

// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lr/group_momentum.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <tuple>
#include <utility>

#include "hone/train/optim/lion.h"
#include "hone/train/optim/muon.h"
#include "hone/train/optim/tam.h"

namespace hone::optim {
namespace {

using torch::optim::OptimizerOptions;

// Calls visit(options as the class they are) for the first of Known that they are.
template <class... Known, class Visit>
void visit_as(OptimizerOptions& options, const Visit& visit) {
  const auto try_one = [&]<class T>(T*) {
    auto* typed = dynamic_cast<T*>(&options);
    if (typed != nullptr) visit(*typed);
    return typed != nullptr;
  };
  static_cast<void>((try_one(static_cast<Known*>(nullptr)) || ...));
}

// LibTorch's classes stand for those that hone derives from them.
template <class Visit>
void visit_momentum(OptimizerOptions& options, const Visit& visit) {
  visit_as<torch::optim::SGDOptions, torch::optim::RMSpropOptions, torch::optim::AdamOptions,
           torch::optim::AdamWOptions, TAMOptions, AdaTAMOptions, AdaTAMWOptions, LionOptions,
           MuonOptions>(options, visit);
}

template <class Options>
concept HasBetas = requires(const Options& options) {
  std::get<0>(options.betas());
};

}  // namespace

std::optional<double> get_momentum(const OptimizerOptions& options) {
  std::optional<double> found;
  // Reads only; one list of classes serves both functions.
  visit_momentum(const_cast<OptimizerOptions&>(options), [&]<class T>(T& typed) {
    if constexpr (HasBetas<T>) {
      found = std::get<0>(typed.betas());
    } else {
      found = std::as_const(typed).momentum();
    }
  });
  return found;
}

void set_momentum(OptimizerOptions& options, double momentum) {
  visit_momentum(options, [&]<class T>(T& typed) {
    if constexpr (HasBetas<T>) {
      typed.betas({momentum, std::get<1>(typed.betas())});
    } else {
      typed.momentum(momentum);
    }
  });
}

}  // namespace hone::optim

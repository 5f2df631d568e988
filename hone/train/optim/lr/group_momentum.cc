// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lr/group_momentum.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "hone/train/optim/option_fields.h"

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

// LibTorch's own classes.
template <class Visit>
void visit_plain(OptimizerOptions& options, const Visit& visit) {
  visit_as<torch::optim::SGDOptions, torch::optim::RMSpropOptions, torch::optim::AdamOptions,
           torch::optim::AdamWOptions>(options, visit);
}

}  // namespace

std::optional<double> get_momentum(const OptimizerOptions& options) {
  if (const auto* own = dynamic_cast<const AddedFields*>(&options)) {
    return own->momentum_of_schedule();
  }
  std::optional<double> found;
  // Reads only; one list of classes serves both functions.
  visit_plain(const_cast<OptimizerOptions&>(options),
              [&](const auto& typed) { found = read_momentum(typed); });
  return found;
}

void set_momentum(OptimizerOptions& options, double momentum) {
  if (auto* own = dynamic_cast<AddedFields*>(&options)) {
    own->set_momentum_of_schedule(momentum);
    return;
  }
  visit_plain(options, [&](auto& typed) { write_momentum(typed, momentum); });
}

}  // namespace hone::optim

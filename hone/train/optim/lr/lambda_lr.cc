// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lr/lambda_lr.h"

#include <utility>

#include "hone/core/check.h"

namespace hone::optim {
namespace {

std::vector<RateFunction> one_per_group(const std::string& kind, std::size_t groups,
                                        std::vector<RateFunction> functions) {
  if (functions.size() == 1) functions.resize(groups, functions.front());
  HONE_CHECK(functions.size() == groups, kind, concat("one function, or one per group: ", groups),
             functions.size());
  for (const RateFunction& function : functions) {
    HONE_CHECK(function != nullptr, kind, "functions that can be called", "an empty one");
  }
  return functions;
}

}  // namespace

LambdaLR::LambdaLR(torch::optim::Optimizer& optimizer, std::vector<RateFunction> functions)
    : Scheduler(optimizer, "LambdaLR"),
      functions_(one_per_group(kind(), groups(), std::move(functions))) {
  step();
}

double LambdaLR::rate_at(Index step, std::size_t group, double base) const {
  return base * functions_[group](step);
}

MultiplicativeLR::MultiplicativeLR(torch::optim::Optimizer& optimizer,
                                   std::vector<RateFunction> functions)
    : Scheduler(optimizer, "MultiplicativeLR"),
      functions_(one_per_group(kind(), groups(), std::move(functions))),
      products_(groups()) {
  step();
}

double MultiplicativeLR::rate_at(Index step, std::size_t group, double base) const {
  Product& product = products_[group];
  if (step < product.step) product = {};
  while (product.step < step) product.value *= functions_[group](++product.step);
  return base * product.value;
}

}  // namespace hone::optim

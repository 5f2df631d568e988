// SPDX-License-Identifier: Apache-2.0
// hone's optimizers against LibTorch's.
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/rmsprop.h"
#include "hone/train/optim/sgd.h"
#include "tests/train/optim/parity_support.h"

namespace hone::optim {
namespace {

using test::kBound;
using test::make_params;
using test::Tensors;
using test::train_both;
using test::two_groups;
using test::worst_difference;

TEST(AgainstLibTorch, adamw_with_two_groups_for_200_steps) {
  using LibOptions = torch::optim::AdamWOptions;
  for (const bool amsgrad : {false, true}) {
    Tensors ours = make_params(), theirs = make_params();
    const LibOptions a = LibOptions(1e-3).weight_decay(0.1).amsgrad(amsgrad);
    const LibOptions b = LibOptions(3e-3).weight_decay(0.02).betas({0.8, 0.99}).amsgrad(amsgrad);
    AdamW hone(two_groups<AdamWOptions>(ours, a, b), LibOptions(1e-3).amsgrad(amsgrad));
    torch::optim::AdamW torch(two_groups(theirs, a, b), LibOptions(1e-3).amsgrad(amsgrad));
    train_both(hone, ours, torch, theirs, 200);
    EXPECT_LE(worst_difference(ours, theirs), kBound);
  }
}

TEST(AgainstLibTorch, groups_may_carry_libtorchs_own_options) {
  using LibOptions = torch::optim::AdamWOptions;
  Tensors ours = make_params(), theirs = make_params();
  const LibOptions a = LibOptions(1e-3).weight_decay(0.1), b = LibOptions(3e-3);
  AdamW hone(two_groups(ours, a, b), LibOptions(1e-3));
  torch::optim::AdamW torch(two_groups(theirs, a, b), LibOptions(1e-3));
  train_both(hone, ours, torch, theirs, 20);
  EXPECT_LE(worst_difference(ours, theirs), kBound);
}

TEST(AgainstLibTorch, adam_with_two_groups_for_200_steps) {
  using LibOptions = torch::optim::AdamOptions;
  for (const bool amsgrad : {false, true}) {
    Tensors ours = make_params(), theirs = make_params();
    const LibOptions a = LibOptions(1e-3).weight_decay(0.1).amsgrad(amsgrad);
    const LibOptions b = LibOptions(3e-3).betas({0.8, 0.99}).amsgrad(amsgrad);
    Adam hone(two_groups(ours, a, b), LibOptions(1e-3).amsgrad(amsgrad));
    torch::optim::Adam torch(two_groups(theirs, a, b), LibOptions(1e-3).amsgrad(amsgrad));
    train_both(hone, ours, torch, theirs, 200);
    EXPECT_LE(worst_difference(ours, theirs), kBound);
  }
}

TEST(AgainstLibTorch, adagrad_with_two_groups_for_200_steps) {
  using LibOptions = torch::optim::AdagradOptions;
  Tensors ours = make_params(), theirs = make_params();
  const LibOptions a = LibOptions(1e-2).weight_decay(0.1).lr_decay(0.05);
  const LibOptions b = LibOptions(3e-2).eps(1e-6);
  Adagrad hone(two_groups(ours, a, b), LibOptions(1e-2).initial_accumulator_value(0.5));
  torch::optim::Adagrad torch(two_groups(theirs, a, b),
                              LibOptions(1e-2).initial_accumulator_value(0.5));
  train_both(hone, ours, torch, theirs, 200);
  EXPECT_LE(worst_difference(ours, theirs), kBound);
}

TEST(AgainstLibTorch, rmsprop_with_two_groups_for_200_steps) {
  using LibOptions = torch::optim::RMSpropOptions;
  const std::vector<std::pair<LibOptions, LibOptions>> settings{
      {LibOptions(1e-3).weight_decay(0.1), LibOptions(3e-3).alpha(0.9).eps(1e-6)},
      {LibOptions(1e-3).momentum(0.9), LibOptions(3e-3).weight_decay(0.1)},
      {LibOptions(1e-3).centered(true).eps(1e-3), LibOptions(3e-3).momentum(0.5)},
  };
  for (const auto& [a, b] : settings) {
    Tensors ours = make_params(), theirs = make_params();
    RMSprop hone(two_groups(ours, a, b));
    torch::optim::RMSprop torch(two_groups(theirs, a, b));
    train_both(hone, ours, torch, theirs, 200);
    EXPECT_LE(worst_difference(ours, theirs), kBound);
  }
}

TEST(AgainstLibTorch, amsgrad_in_one_group_alone) {
  using LibOptions = torch::optim::AdamWOptions;
  const LibOptions with = LibOptions(1e-3).amsgrad(true), without(3e-3);
  for (const bool first : {true, false}) {
    const LibOptions &a = first ? with : without, &b = first ? without : with;
    Tensors ours = make_params(), theirs = make_params();
    AdamW hone(two_groups(ours, a, b));
    torch::optim::AdamW torch(two_groups(theirs, a, b));
    train_both(hone, ours, torch, theirs, 20);
    EXPECT_LE(worst_difference(ours, theirs), kBound);
    for (const NamedState& state : hone.export_state()) {
      if (state.name == "max_exp_avg_sq") {
        EXPECT_EQ(state.parameter < 3, first);
      }
    }
    // Each group steps as where both have its setting.
    for (const bool of_first : {true, false}) {
      Tensors mixed = make_params(), same = make_params();
      AdamW both(two_groups(mixed, a, b));
      const LibOptions& one = of_first ? a : b;
      AdamW alike(two_groups(same, one, one));
      train_both(both, mixed, alike, same, 200);
      const std::size_t begin = of_first ? 0 : 3, end = of_first ? 3 : mixed.size();
      for (std::size_t i = begin; i < end; ++i) EXPECT_TRUE(mixed[i].equal(same[i])) << i;
    }
  }
}

TEST(AgainstLibTorch, sgd_with_two_groups_for_200_steps) {
  using LibOptions = torch::optim::SGDOptions;
  const LibOptions plain(0.01);
  const std::vector<std::pair<LibOptions, LibOptions>> settings{
      {plain, LibOptions(0.003).weight_decay(0.1)},
      {LibOptions(0.01).momentum(0.9).dampening(0.1), LibOptions(0.003).momentum(0.5)},
      {LibOptions(0.01).momentum(0.9).nesterov(true), LibOptions(0.003).weight_decay(0.1)},
  };
  for (const auto& [a, b] : settings) {
    Tensors ours = make_params(), theirs = make_params();
    SGD hone(two_groups(ours, a, b), plain);
    torch::optim::SGD torch(two_groups(theirs, a, b), plain);
    train_both(hone, ours, torch, theirs, 200);
    EXPECT_LE(worst_difference(ours, theirs), kBound);
  }
}

}  // namespace
}  // namespace hone::optim

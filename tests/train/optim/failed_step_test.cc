// SPDX-License-Identifier: Apache-2.0
// A step that throws, or that is skipped, changes nothing.
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <memory>

#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/muon.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "tests/support/error_of.h"
#include "tests/train/optim/parity_support.h"

namespace hone::optim {
namespace {

using hone::test::error_of;
using test::set_normal_gradients;
using testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

// LibTorch's allocator of the CPU while it exists, with a limit of bytes at a time.
class LimitedAllocator final : public c10::Allocator {
 public:
  LimitedAllocator() : base_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this); }
  ~LimitedAllocator() override { c10::SetCPUAllocator(base_); }

  void set_limit(Index more) { limit_ = used_ + more; }

  c10::DataPtr allocate(std::size_t bytes) override {
    TORCH_CHECK(used_ + static_cast<Index>(bytes) <= limit_, "out of memory");
    used_ += static_cast<Index>(bytes);
    auto* block = new Block{this, static_cast<Index>(bytes), base_->allocate(bytes)};
    return {block->memory.get(), block, &release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  struct Block {
    LimitedAllocator* owner;
    Index bytes;
    c10::DataPtr memory;
  };
  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    block->owner->used_ -= block->bytes;
  }

  c10::Allocator* base_;
  std::atomic<Index> used_{0}, limit_{std::numeric_limits<Index>::max()};
};

constexpr Implementation kAll[] = {Implementation::ForLoop, Implementation::Foreach,
                                   Implementation::Fused};

Tensors make_two_params() {
  torch::manual_seed(11);
  Tensors params{torch::rand({6, 5}), torch::rand({7, 4})};
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

// Parameters, gradients and all state.
Tensors everything(const Tensors& params, const MultiTensorOptimizer& optimizer) {
  Tensors all;
  for (const torch::Tensor& param : params) {
    all.push_back(param.detach().clone());
    all.push_back(param.grad().clone());
  }
  for (const NamedState& item : optimizer.export_state()) all.push_back(item.value.clone());
  return all;
}

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].allclose(b[i], 0, 0, /*equal_nan=*/true)) << i;
  }
}

// Two optimizers take the same steps; one of them fails in between, and both go on alike.
template <class Make>
void check_failed_step(const Make& make, bool with_state,
                       const std::function<std::string(MultiTensorOptimizer&, Tensors&)>& fail,
                       const std::string& sentence) {
  Tensors params = make_two_params(), wanted = make_two_params();
  const auto optimizer = make(params), reference = make(wanted);
  for (int t = 0; t < (with_state ? 3 : 0); ++t) {
    set_normal_gradients(params, 40 + t);
    set_normal_gradients(wanted, 40 + t);
    optimizer->step();
    reference->step();
  }
  set_normal_gradients(params, 43);
  EXPECT_THAT(fail(*optimizer, params), HasSubstr(sentence));
  expect_equal({params[0].detach(), params[1].detach()}, {wanted[0].detach(), wanted[1].detach()});
  set_normal_gradients(params, 44);
  set_normal_gradients(wanted, 44);
  expect_equal(everything(params, *optimizer), everything(wanted, *reference));
  EXPECT_EQ(optimizer->stats().steps, reference->stats().steps);
  optimizer->step();
  reference->step();
  expect_equal(everything(params, *optimizer), everything(wanted, *reference));
}

template <class Optimizer, class Options>
auto failing_maker(const Options& options) {
  return [options](const Tensors& params) { return std::make_unique<Optimizer>(params, options); };
}

// Groups of their own.
auto make_tam(Implementation way) {
  return [way](const Tensors& params) {
    return std::make_unique<TAM>(
        std::vector<torch::optim::OptimizerParamGroup>{{{params[0]}}, {{params[1]}}},
        TAMOptions(0.05).implementation(way));
  };
}

TEST(FailedStep, of_a_group_that_operators_cannot_step_leaves_the_groups_before_it) {
  const auto fail = [](MultiTensorOptimizer& optimizer, Tensors&) {
    auto& second = static_cast<TAMOptions&>(optimizer.param_groups()[1].options());
    const TAMOptions before = second;
    second.scope(TAMScope::Row);
    const std::string error = error_of([&] { optimizer.step(); });
    second = before;
    return error;
  };
  for (const Implementation way : {Implementation::ForLoop, Implementation::Foreach}) {
    for (const bool with_state : {false, true}) {
      check_failed_step(make_tam(way), with_state, fail, "Implementation::Fused for scope row");
    }
  }
}

template <class Optimizer, class Options>
void check_expanded_gradient(const Options& options) {
  const auto fail = [](MultiTensorOptimizer& optimizer, Tensors& params) {
    params[1].mutable_grad() = torch::ones({1, 1}).expand({7, 4});
    return error_of(
        [&] { optimizer.step_with({.inv_scale = 0.5, .grad = GradWriteBack::Unscaled}); });
  };
  for (const Implementation way : kAll) {
    for (const bool with_state : {false, true}) {
      check_failed_step(failing_maker<Optimizer>(Options(options).implementation(way)), with_state,
                        fail, "gradient");
    }
  }
}

// It cannot be written back, which the operators find after the step of the parameter.
TEST(FailedStep, of_an_expanded_gradient_that_is_written_back_changes_nothing) {
  check_expanded_gradient<SGD>(SGDOptions(0.1).momentum(0.9));
  check_expanded_gradient<Adam>(AdamOptions(0.1));
  check_expanded_gradient<AdamW>(AdamWOptions(0.1));
  check_expanded_gradient<Adagrad>(AdagradOptions(0.1));
  check_expanded_gradient<Lion>(LionOptions(0.1));
  check_expanded_gradient<TAM>(TAMOptions(0.1));
  check_expanded_gradient<AdaTAMW>(AdaTAMWOptions(0.1));
  check_expanded_gradient<Muon>(MuonOptions(0.1));
}

// Its momentum is stepped by a kernel, its parameters by operators after that.
TEST(FailedStep, of_muon_leaves_the_momentum) {
  const auto flat = [](MultiTensorOptimizer& optimizer, Tensors& params) {
    const torch::Tensor before = params[1].detach();
    params[1].set_data(before.flatten());
    params[1].mutable_grad() = torch::ones({28});
    const std::string error = error_of([&] { optimizer.step(); });
    params[1].set_data(before);
    return error;
  };
  const auto shared = [](MultiTensorOptimizer& optimizer, Tensors& params) {
    const torch::Tensor both = torch::ones({30});
    params[0].mutable_grad() = both.view({6, 5});
    params[1].mutable_grad() = both.narrow(0, 0, 28).view({7, 4});
    return error_of([&] { optimizer.step_with({.grad = GradWriteBack::Zero}); });
  };
  for (const Implementation way : kAll) {
    const auto make = failing_maker<Muon>(MuonOptions(0.1).implementation(way));
    check_failed_step(make, false, flat, "a matrix");
    for (const bool with_state : {false, true})
      check_failed_step(make, with_state, shared, "got memory");
  }
}

TEST(FailedStep, of_muon_without_memory_changes_nothing) {
  for (const bool narrow : {false, true}) {
    torch::manual_seed(3);
    LimitedAllocator memory;
    {
      const auto type = narrow ? at::kBFloat16 : at::kFloat;
      Tensors params{torch::rand({96, 64}).to(type), torch::rand({64, 160}).to(type)};
      for (torch::Tensor& param : params) {
        param.requires_grad_().mutable_grad() = torch::rand_like(param);
      }
      const auto options =
          MuonOptions(0.1).state_dtype(narrow ? StateDtype::Block8 : StateDtype::Float32);
      Muon optimizer(params, options);
      optimizer.step();
      int failed = 0;
      for (Index limit = 0; optimizer.stats().steps == 1; limit += 1500) {
        const Tensors before = everything(params, optimizer);
        memory.set_limit(limit);
        bool threw = false;
        try {
          optimizer.step();
        } catch (const std::exception&) {
          threw = true;
        }
        memory.set_limit(Index{1} << 40);
        if (!threw) break;
        ++failed;
        expect_equal(everything(params, optimizer), before);
      }
      EXPECT_GT(failed, 50);
      EXPECT_EQ(optimizer.stats().steps, 2);
    }
  }
}

TEST(FailedStep, of_a_parameter_of_inference_mode_leaves_the_others) {
  for (const Implementation way : {Implementation::ForLoop, Implementation::Foreach}) {
    torch::Tensor fixed;
    {
      const c10::InferenceMode inference;
      fixed = torch::ones({3});
    }
    torch::Tensor param = torch::ones({3}).requires_grad_();
    AdamW optimizer(Tensors{param, fixed}, AdamWOptions(0.1).implementation(way));
    param.mutable_grad() = torch::ones({3});
    {
      const c10::InferenceMode inference;
      fixed.mutable_grad() = torch::ones({3});
    }
    EXPECT_THAT(error_of([&] { optimizer.step(); }), HasSubstr("inference mode"));
    EXPECT_TRUE(param.equal(torch::ones({3})));
    EXPECT_TRUE(optimizer.export_state().empty());
  }
}

// Averages begin at the first step that happens.
TEST(FailedStep, that_is_skipped_makes_no_average) {
  Tensors params = make_two_params(), wanted = make_two_params();
  AdamW optimizer(params, AdamWOptions(0.1)), reference(wanted, AdamWOptions(0.1));
  const auto step = [](AdamW& one, Tensors& its_params, int t, const StepControl& control) {
    set_normal_gradients(its_params, 40 + t);
    if (t == 1) its_params[1].grad()[0][0] = std::nanf("");
    return one.step_with(control).stepped;
  };
  for (AdamW* one : {&optimizer, &reference}) {
    step(*one, one == &optimizer ? params : wanted, 0, {});
  }
  EXPECT_FALSE(step(optimizer, params, 1, {.skip_nonfinite = true, .ema_decay = 0.5}));
  for (const torch::Tensor& average : optimizer.averages()) EXPECT_FALSE(average.defined());
  for (int t = 2; t < 4; ++t) {
    const StepControl control{.ema_decay = t == 2 ? 0 : 0.5};
    EXPECT_TRUE(step(optimizer, params, t, control));
    EXPECT_TRUE(step(reference, wanted, t, control));
  }
  expect_equal(everything(params, optimizer), everything(wanted, reference));
}

}  // namespace
}  // namespace hone::optim

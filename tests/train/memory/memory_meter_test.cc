// SPDX-License-Identifier: Apache-2.0
#include "hone/train/memory/memory_meter.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "hone/core/error.h"
#include "hone/train/memory/device_memory.h"

namespace hone::memory {
namespace {

TEST(MemoryMeter, counts_the_bytes_asked_for_and_their_peak_exactly) {
  const at::Tensor before = at::zeros({1000});
  MemoryMeter meter;
  const Index base = meter.use().current;
  at::Tensor a = at::zeros({1000}), b = at::empty({3}, at::kDouble), none = at::empty({0});
  EXPECT_EQ(meter.use().current - base, 4000 + 24);
  EXPECT_TRUE(MemoryMeter::counts(a));
  EXPECT_FALSE(MemoryMeter::counts(before));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data_ptr()) % 64, 0u);
  a.reset();
  EXPECT_EQ(meter.use().current - base, 24);
  EXPECT_GE(meter.use().peak - base, 4024);
  meter.reset_peak();
  EXPECT_EQ(meter.use().peak - base, 24);
  b.resize_({100});  // a new block beside the old one, which then goes
  EXPECT_EQ(meter.use().current - base, 800);
  EXPECT_EQ(meter.use().peak - base, 824);
}

TEST(MemoryMeter, knows_what_outlives_it_and_ignores_what_is_older) {
  at::Tensor older = at::zeros({100}), younger;
  Index base = 0;
  {
    const MemoryMeter meter;
    base = meter.use().current;
    younger = at::zeros({50});
    older.reset();
    EXPECT_EQ(meter.use().current - base, 200);
  }
  const at::Tensor between = at::zeros({7});
  EXPECT_FALSE(MemoryMeter::counts(between));
  younger.reset();
  EXPECT_EQ(MemoryMeter().use().current, base);
}

// oneDNN asks for scratch memory of no bytes and hands the null pointer back.
TEST(MemoryMeter, takes_back_nothing_and_stands_a_convolution) {
  const MemoryMeter meter;
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  allocator.raw_deallocate(allocator.raw_allocate(0));
  const Index base = meter.use().current;
  {
    at::Tensor image = at::ones({2, 3, 9, 9}), weight = at::ones({8, 3, 3, 3});
    weight.set_requires_grad(true);
    at::conv2d(image, weight).sum().backward();
    EXPECT_EQ(weight.grad()[0][0][0][0].item<float>(), 2 * 49);
  }
  EXPECT_EQ(meter.use().current, base);
}

TEST(MemoryMeter, splits_by_the_phase_that_allocated) {
  MemoryMeter meter;
  const MemoryUse base = meter.use();
  at::Tensor weights, activation;
  {
    const PhaseScope setup(Phase::Setup);
    weights = at::zeros({10});
    const PhaseScope forward(Phase::Forward);
    activation = at::zeros({20});
  }
  meter.reset_peak();
  EXPECT_EQ(meter.use().of(Phase::Setup) - base.of(Phase::Setup), 40);
  activation.reset();
  EXPECT_EQ(meter.use().of(Phase::Forward) - base.of(Phase::Forward), 0);
  EXPECT_EQ(meter.use().at_peak_of(Phase::Forward) - base.of(Phase::Forward), 80);
}

TEST(MemoryMeter, is_exact_when_threads_allocate_and_free_for_each_other) {
  MemoryMeter meter;
  const Index base = meter.use().current;
  std::vector<at::Tensor> kept(400);
  const auto fill = [&](std::size_t first) {
    for (std::size_t i = first; i < kept.size(); i += 2) kept[i] = at::empty({Index(i) + 1});
  };
  std::thread even(fill, 0), odd(fill, 1);
  even.join(), odd.join();
  EXPECT_EQ(meter.use().current - base, 4 * 400 * 401 / 2);
  std::thread([&] { kept.clear(); }).join();
  EXPECT_EQ(meter.use().current, base);
}

TEST(MemoryLimit, refuses_as_an_allocator_does_and_counts_nothing_for_it) {
  MemoryMeter meter;
  const Index base = meter.use().current;
  {
    const MemoryLimit limit(base + 1000);
    const at::Tensor fits = at::empty({1000}, at::kByte);
    EXPECT_THROW(at::empty({1}, at::kByte), c10::OutOfMemoryError);
    EXPECT_EQ(meter.use().current - base, 1000);
    const MemoryLimit wider(base + 2000);
    EXPECT_NO_THROW(at::empty({1}, at::kByte));
  }
  EXPECT_NO_THROW(at::empty({10000}, at::kByte));
}

TEST(RunInMemory, says_in_one_sentence_what_did_not_fit_and_lets_other_errors_pass) {
  const auto said = [](const auto& work) -> std::string {
    try {
      run_in_memory("train", work);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::Resource);
      return error.what();
    }
    return "nothing";
  };
  const std::string huge = said([] { at::empty({Index{1} << 50}); });
  EXPECT_THAT(huge, testing::HasSubstr("[train] There is not enough memory for the tensors: "));
  EXPECT_THAT(huge, testing::HasSubstr("4503599627370496"));
  EXPECT_EQ(huge.find('\n'), std::string::npos);
  const std::string limited = said([] {
    const MemoryMeter meter;
    const MemoryLimit limit(meter.use().current + 100);
    at::empty({1000});
  });
  EXPECT_THAT(limited, testing::HasSubstr("in use exceed the limit of"));
  EXPECT_THAT(said([] { throw std::bad_alloc(); }),
              testing::HasSubstr("There is not enough memory"));
  EXPECT_EQ(run_in_memory("train", [] { return 3; }), 3);
  EXPECT_THROW(run_in_memory("train", [] { throw std::runtime_error("other"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace hone::memory

// SPDX-License-Identifier: Apache-2.0
// Tensors of more elements than 32 bits count, in memory that nothing touches until it is written.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <stdexcept>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"

namespace hone::kernels {
namespace {

// Zeros, backed by the one page of zeros where they were only read.
class LazyFloats {
 public:
  explicit LazyFloats(Index count) : bytes_(static_cast<std::size_t>(count) * sizeof(float)) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::runtime_error("mmap");
  }
  LazyFloats(const LazyFloats&) = delete;
  LazyFloats& operator=(const LazyFloats&) = delete;
  ~LazyFloats() { ::munmap(data_, bytes_); }
  float& operator[](Index i) { return static_cast<float*>(data_)[i]; }
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// A checked step whose new values overflow reads everything twice and writes nothing.
TEST(Large, norm_of_a_tensor_of_more_than_2_to_the_31_elements) {
  constexpr Index kBorder = Index{1} << 31, kCount = kBorder + 16'385;
  LazyFloats param(kCount), grad(kCount);
  grad[0] = 3;
  grad[kBorder - 1] = 4;
  grad[kBorder] = -12;
  grad[kCount - 1] = 84;
  const TensorView views[] = {{param.data(), Dtype::Float32, Shape{kCount}},
                              {grad.data(), Dtype::Float32, Shape{kCount}}};
  const std::uint16_t group_of[] = {0};
  Index step[] = {0};
  MultiTensorLists lists;
  lists.param = {&views[0], 1};
  lists.grad = {&views[1], 1};
  lists.group = group_of;
  lists.step = step;
  const MultiTensorPlan plan = MultiTensorPlan::build_or_throw(lists);
  EXPECT_EQ(plan.elements(), kCount);
  ThreadPool pool(2);
  const SGDGroup group{.lr = 1e39};
  const StepReport report = sgd_step(plan, {&group, 1}, {.clip_norm = 1e9, .checked = true}, pool);
  EXPECT_DOUBLE_EQ(report.grad_norm, 85);
  EXPECT_FALSE(report.stepped);
  EXPECT_EQ(report.first_nonfinite_tensor, 0);
  // inf or NaN only behind the border is seen as well.
  grad[kCount - 1] = HUGE_VALF;
  const SGDGroup small{.lr = 1};
  EXPECT_FALSE(sgd_step(plan, {&small, 1}, {.skip_nonfinite = true}, pool).stepped);
  EXPECT_EQ(step[0], 0);
}

}  // namespace
}  // namespace hone::kernels

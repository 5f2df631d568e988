// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/training/train_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "hone/core/thread_pool.h"

namespace hone::kernels::training {
namespace {

using Values = std::vector<float>;

constexpr double kEps = 0x1p-23;

Values random_values(Index n, std::uint64_t seed, float scale = 1) {
  PhiloxStream random(seed);
  Values out(static_cast<std::size_t>(n));
  for (float& value : out) value = scale * (2 * random.uniform() - 1);
  return out;
}

void expect_close(const Values& got, const Values& want, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double scale = 1e-30, worst = 0;
  std::size_t at = 0;
  for (const float value : want) scale = std::max(scale, std::abs(static_cast<double>(value)));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]);
    if (!(error <= worst)) worst = error, at = i;
  }
  EXPECT_LE(worst, tolerance * scale)
      << what << ": element " << at << " got " << got[at] << " want " << want[at];
}

// Widths around every vector length, rows that fill several chunks.
const std::vector<std::pair<Index, Index>> kShapes = {{1, 1},  {3, 2},    {2, 7},    {5, 16},
                                                      {4, 31}, {129, 33}, {700, 160}};

struct NormCase {
  Index rows, dim;
  Values x, delta, weight, grad, carried;
  NormCase(Index r, Index d)
      : rows(r),
        dim(d),
        x(random_values(r * d, 1)),
        delta(random_values(r * d, 2)),
        weight(random_values(d, 3)),
        grad(random_values(r * d, 4)),
        carried(random_values(r * d, 5)) {}
};

struct NormResult {
  Values sum, normed, inverse_rms, grad_x, grad_weight;
};

template <class Forward, class Backward>
NormResult run_norm(const NormCase& c, const Forward& forward, const Backward& backward) {
  NormResult out;
  out.sum = out.normed = out.grad_x = Values(c.x.size());
  out.inverse_rms = Values(static_cast<std::size_t>(c.rows));
  out.grad_weight = Values(c.weight.size());
  AddRmsNorm op;
  op.rows = c.rows, op.dim = c.dim, op.x = c.x.data(), op.delta = c.delta.data();
  op.weight = c.weight.data(), op.sum = out.sum.data(), op.normed = out.normed.data();
  op.inverse_rms = out.inverse_rms.data();
  forward(op);
  AddRmsNormGrad grad;
  grad.rows = c.rows, grad.dim = c.dim, grad.sum = out.sum.data(), grad.weight = c.weight.data();
  grad.inverse_rms = out.inverse_rms.data(), grad.grad_normed = c.grad.data();
  grad.grad_sum = c.carried.data(), grad.grad_x = out.grad_x.data();
  grad.grad_weight = out.grad_weight.data();
  backward(grad);
  return out;
}

NormResult run_norm(const NormCase& c, Executor& executor) {
  return run_norm(
      c, [&](const AddRmsNorm& op) { add_rms_norm(op, executor); },
      [&](const AddRmsNormGrad& op) { add_rms_norm_grad(op, executor); });
}

TEST(AddRmsNorm, matches_the_reference_and_its_gradient_does) {
  for (const auto& [rows, dim] : kShapes) {
    const NormCase c(rows, dim);
    const std::string what = std::to_string(rows) + "x" + std::to_string(dim);
    const NormResult want = run_norm(c, add_rms_norm_ref, add_rms_norm_grad_ref);
    const NormResult got = run_norm(c, serial_executor());
    const double sums = std::sqrt(static_cast<double>(dim)) + 8;
    expect_close(got.sum, want.sum, 0, what + " sum");
    expect_close(got.normed, want.normed, sums * kEps, what + " normed");
    expect_close(got.grad_x, want.grad_x, 4 * sums * kEps, what + " grad x");
    expect_close(got.grad_weight, want.grad_weight,
                 (std::sqrt(static_cast<double>(rows)) + 8) * kEps, what + " grad weight");
  }
}

TEST(AddRmsNorm, without_delta_reads_x_as_the_sum) {
  const NormCase c(3, 19);
  Values normed(c.x.size()), want(c.x.size()), zero(c.x.size()), sum(c.x.size()), inverse(3);
  AddRmsNorm op;
  op.rows = 3, op.dim = 19, op.x = c.x.data(), op.weight = c.weight.data();
  op.inverse_rms = inverse.data(), op.normed = normed.data();
  add_rms_norm(op, serial_executor());
  op.delta = zero.data(), op.sum = sum.data(), op.normed = want.data();
  add_rms_norm(op, serial_executor());
  EXPECT_EQ(normed, want);
}

TEST(AddRmsNorm, has_the_same_bits_for_any_number_of_workers) {
  const NormCase c(700, 160);
  ThreadPool pool(3);
  const NormResult one = run_norm(c, serial_executor()), three = run_norm(c, pool);
  EXPECT_EQ(one.normed, three.normed);
  EXPECT_EQ(one.grad_x, three.grad_x);
  EXPECT_EQ(one.grad_weight, three.grad_weight);
}

TEST(SwiGlu, matches_the_reference_and_its_gradient_does) {
  for (const auto& [rows, dim] : kShapes) {
    const Values gate_up = random_values(rows * 2 * dim, 7, 12),
                 grad = random_values(rows * dim, 8);
    Values out(grad.size()), want(grad.size()), by_input(gate_up.size()), want_by(gate_up.size());
    swiglu({rows, dim, gate_up.data(), out.data()}, serial_executor());
    swiglu_ref({rows, dim, gate_up.data(), want.data()});
    expect_close(out, want, 8 * kEps, "swiglu");
    swiglu_grad({rows, dim, gate_up.data(), grad.data(), by_input.data()}, serial_executor());
    swiglu_grad_ref({rows, dim, gate_up.data(), grad.data(), want_by.data()});
    expect_close(by_input, want_by, 16 * kEps, "swiglu gradient");
    Values in_place = gate_up;
    swiglu_grad({rows, dim, in_place.data(), grad.data(), in_place.data()}, serial_executor());
    EXPECT_EQ(in_place, by_input) << "the gradient may overwrite its input";
  }
}

TEST(SwiGlu, stays_finite_for_gates_far_out) {
  const Values gate_up = {-200, 200, -1000, 1000, 1, 1, 1, 1};
  Values out(4);
  swiglu({1, 4, gate_up.data(), out.data()}, serial_executor());
  EXPECT_NEAR(out[0], 0, 1e-30);
  EXPECT_EQ(out[1], 200);
  EXPECT_NEAR(out[2], 0, 1e-30);
  EXPECT_EQ(out[3], 1000);
}

struct RopeCase {
  Index rows = 12, positions = 6, heads = 3, head_dim = 0;
  Values in, cos, sin;
  explicit RopeCase(Index dim) : head_dim(dim) {
    in = random_values(rows * heads * dim, 11);
    for (Index i = 0; i < positions * dim / 2; ++i) {
      const double angle = 0.37 * static_cast<double>(i + 1);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  Rope op(const float* from, float* to, bool inverse = false) const {
    const Index stride = heads * head_dim;
    return {rows, positions, heads,      head_dim,   from,   stride,
            to,   stride,    cos.data(), sin.data(), inverse};
  }
};

TEST(Rope, matches_the_reference_keeps_norms_and_turns_back) {
  for (const Index dim : {2, 10, 32, 36, 64}) {
    const RopeCase c(dim);
    Values out(c.in.size()), want(c.in.size()), back(c.in.size());
    rope(c.op(c.in.data(), out.data()), serial_executor());
    rope_ref(c.op(c.in.data(), want.data()));
    expect_close(out, want, 2 * kEps, "rope");
    rope(c.op(out.data(), back.data(), true), serial_executor());
    expect_close(back, c.in, 4 * kEps, "turned back");
    for (std::size_t head = 0; head < c.in.size(); head += static_cast<std::size_t>(dim)) {
      const auto norm = [&](const Values& v) {
        const auto begin = v.begin() + static_cast<Index>(head);
        return std::inner_product(begin, begin + dim, begin, 0.0);
      };
      EXPECT_NEAR(norm(out), norm(c.in), 16 * kEps * norm(c.in));
    }
  }
}

TEST(CrossEntropy, matches_the_reference_and_ignores_negative_targets) {
  for (const auto& [rows, classes] : kShapes) {
    const Values logits = random_values(rows * classes, 21, 20);
    std::vector<std::int64_t> targets;
    for (Index row = 0; row < rows; ++row) targets.push_back(row % 5 == 4 ? -1 : row % classes);
    Values got = logits, want = logits, untouched = logits;
    std::vector<double> nats(targets.size()), want_nats(targets.size()), only(targets.size());
    cross_entropy({rows, classes, got.data(), targets.data(), nats.data(), true},
                  serial_executor());
    cross_entropy_ref({rows, classes, want.data(), targets.data(), want_nats.data(), true});
    cross_entropy({rows, classes, untouched.data(), targets.data(), only.data(), false},
                  serial_executor());
    EXPECT_EQ(untouched, logits) << "without a gradient the logits stay";
    EXPECT_EQ(only, nats);
    expect_close(got, want, 64 * kEps, "gradient");
    for (std::size_t row = 0; row < targets.size(); ++row) {
      EXPECT_NEAR(nats[row], want_nats[row], 64 * kEps * (1 + want_nats[row]));
    }
  }
}

TEST(CrossEntropy, refuses_a_target_outside_the_classes) {
  Values logits(4);
  const std::int64_t target = 4;
  double nats = 0;
  EXPECT_THROW(cross_entropy({1, 4, logits.data(), &target, &nats, true}, serial_executor()),
               hone::Error);
}

}  // namespace
}  // namespace hone::kernels::training

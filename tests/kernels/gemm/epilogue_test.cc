// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "hone/core/error.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/gemm/gemm.h"
#include "tests/kernels/gemm/weight_support.h"
#include "tests/support/straggling_executor.h"

namespace hone::kernels {
namespace {

using test::make_weight;
using test::random_floats;

// Whole rows of y_stride values.
std::vector<float> reference(const PackedRows& x, GemmOutput output) {
  std::vector<float> y(static_cast<std::size_t>(x.rows() * output.y_stride), -1.0f);
  output.y = y.data();
  gemm_ref(x, output);
  return y;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& wanted, float relative) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], wanted[i], relative * std::fabs(wanted[i]) + 1e-5f) << i;
  }
}

class EpilogueRows : public testing::TestWithParam<Index> {};

TEST_P(EpilogueRows, adds_bias_and_residual) {
  const Index rows = GetParam(), n = 83, k = 96;
  const PackedMatrix weight = pack(make_weight("q8_0", n, k, 1).stored());
  const auto x = random_floats(rows * k, 2), bias = random_floats(n, 3);
  const Index stride = n + 5;
  auto y = random_floats(rows * stride, 4);
  PackedRows packed;
  quantize_rows(x.data(), rows, k, k, packed, serial_executor());
  const std::vector<float> before = y;
  GemmOutput output{.weight = &weight, .y = y.data(), .y_stride = stride};
  output.epilogue = {.bias = bias.data(), .residual = before.data(), .residual_stride = stride};
  auto wanted = reference(packed, output);
  for (Index m = 0; m < rows; ++m) {  // what lies between the rows stays
    for (Index i = n; i < stride; ++i) {
      wanted[static_cast<std::size_t>(m * stride + i)] =
          before[static_cast<std::size_t>(m * stride + i)];
    }
  }
  output.epilogue.residual = y.data();  // in place
  ThreadPool pool(2);
  gemm({.x = packed, .outputs = {&output, 1}, .executor = pool});
  expect_near(y, wanted, 1e-5f);
}

// Against silu in double of the separately computed sums, which have the same bits.
TEST_P(EpilogueRows, gates_with_silu) {
  const Index rows = GetParam(), k = 64;
  ThreadPool pool(2);
  for (const Index n : {1, 16, 37, 200}) {
    for (const std::string format : {"f32", "q4_0"}) {
      const auto gate = make_weight(format, n, k, 1), up = make_weight(format, n, k, 2);
      const PackedMatrix gate_weight = pack(gate.stored()), up_weight = pack(up.stored());
      const PackedMatrix weight = pack_gate_up(gate.stored(), up.stored());
      const auto x = random_floats(rows * k, 2, 4.0f), bias = random_floats(2 * n, 3);
      const auto run = [&](const PackedMatrix& w, const float* b, Activation activation) {
        std::vector<float> y(static_cast<std::size_t>(rows * n));
        GemmOutput output{.weight = &w, .y = y.data(), .y_stride = n};
        output.epilogue = {.bias = b, .activation = activation};
        gemm(x.data(), rows, k, output, pool);
        return y;
      };
      const auto gates = run(gate_weight, bias.data(), Activation::None);
      const auto ups = run(up_weight, bias.data() + n, Activation::None);
      const auto y = run(weight, bias.data(), Activation::SiluGate);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const double v = static_cast<double>(gates[i]);
        const double wanted = v / (1 + std::exp(-v)) * static_cast<double>(ups[i]);
        ASSERT_NEAR(static_cast<double>(y[i]), wanted, 2e-6 * std::fabs(wanted) + 1e-7)
            << format << " " << n << " at " << i;
      }
    }
  }
}

double gelu_tanh(double v) {
  return v / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
}

// Against GELU in double of the separately computed sums, which have the same bits.
TEST_P(EpilogueRows, applies_gelu_with_and_without_a_gate) {
  const Index rows = GetParam(), k = 64;
  ThreadPool pool(2);
  for (const Index n : {1, 16, 37, 200}) {
    for (const std::string format : {"f32", "q4_0"}) {
      const auto gate = make_weight(format, n, k, 1), up = make_weight(format, n, k, 2);
      const PackedMatrix gate_weight = pack(gate.stored()), up_weight = pack(up.stored());
      const PackedMatrix weight = pack_gate_up(gate.stored(), up.stored());
      const auto x = random_floats(rows * k, 2, 4.0f), bias = random_floats(2 * n, 3);
      const auto run = [&](const PackedMatrix& w, const float* b, Activation activation) {
        std::vector<float> y(static_cast<std::size_t>(rows * n));
        GemmOutput output{.weight = &w, .y = y.data(), .y_stride = n};
        output.epilogue = {.bias = b, .activation = activation};
        gemm(x.data(), rows, k, output, pool);
        return y;
      };
      const auto gates = run(gate_weight, bias.data(), Activation::None);
      const auto ups = run(up_weight, bias.data() + n, Activation::None);
      const auto gated = run(weight, bias.data(), Activation::GeluTanhGate);
      const auto plain = run(gate_weight, bias.data(), Activation::GeluTanh);
      for (std::size_t i = 0; i < gated.size(); ++i) {
        const double wanted = gelu_tanh(static_cast<double>(gates[i]));
        const double with_up = wanted * static_cast<double>(ups[i]);
        // Below 0 GELU is a small part of v: its error is that of 1 + tanh.
        const double tolerance = 2e-6 * std::fabs(static_cast<double>(gates[i])) + 1e-7;
        ASSERT_NEAR(static_cast<double>(plain[i]), wanted, tolerance) << format << " at " << i;
        ASSERT_NEAR(static_cast<double>(gated[i]), with_up,
                    tolerance * (std::fabs(static_cast<double>(ups[i])) + 1))
            << format << " at " << i;
      }
    }
  }
}

TEST_P(EpilogueRows, several_outputs_equal_separate_calls) {
  const Index rows = GetParam(), k = 160;
  const PackedMatrix q = pack(make_weight("q4_0", 192, k, 1).stored());
  const PackedMatrix key = pack(make_weight("q8_0", 48, k, 2).stored());
  const PackedMatrix value = pack(make_weight("int4:g64", 50, k, 3).stored());
  const auto x = random_floats(rows * k, 2);
  PackedRows packed;
  quantize_rows(x.data(), rows, k, k, packed, serial_executor());
  const auto run = [&](Executor& executor, bool together) {
    std::vector<float> y(static_cast<std::size_t>(rows * 290));
    const GemmOutput outputs[] = {{.weight = &q, .y = y.data(), .y_stride = 290},
                                  {.weight = &key, .y = y.data() + 192, .y_stride = 290},
                                  {.weight = &value, .y = y.data() + 240, .y_stride = 290}};
    if (together) {
      gemm({.x = packed, .outputs = outputs, .executor = executor});
    } else {
      for (const GemmOutput& output : outputs) {
        gemm({.x = packed, .outputs = {&output, 1}, .executor = executor});
      }
    }
    return y;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run(pool, true), run(serial_executor(), false));
}

INSTANTIATE_TEST_SUITE_P(Gemm, EpilogueRows, testing::Values(1, 5, 16, 40, 200));

TEST(Epilogue, gelu_stays_accurate_and_finite_over_its_range) {
  // An identity, so that y = gelu(x).
  constexpr Index kColumns = 16;
  std::vector<float> identity(kColumns * kColumns, 0.0f);
  for (Index i = 0; i < kColumns; ++i) identity[static_cast<std::size_t>(i * 17)] = 1.0f;
  StoredMatrix stored;
  stored.rows = stored.cols = kColumns;
  stored.bytes = std::as_bytes(std::span(identity));
  const PackedMatrix weight = pack(stored);
  for (float first = -100; first < 100; first += 0.37f) {
    std::vector<float> x(kColumns), y(kColumns);
    for (Index i = 0; i < kColumns; ++i)
      x[static_cast<std::size_t>(i)] = first + 0.02f * static_cast<float>(i);
    GemmOutput output{.weight = &weight, .y = y.data(), .y_stride = kColumns};
    output.epilogue.activation = Activation::GeluTanh;
    gemm(x.data(), 1, kColumns, output, serial_executor());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = static_cast<double>(x[i]);
      ASSERT_NEAR(static_cast<double>(y[i]), gelu_tanh(v), 1e-6 * std::fabs(v) + 1e-7) << v;
    }
  }
}

TEST(Epilogue, silu_stays_accurate_and_finite_over_its_range) {
  // Gate passes through an identity, up is one: y = silu(x).
  constexpr Index kColumns = 16;
  std::vector<float> identity(kColumns * kColumns, 0.0f), last(kColumns * kColumns, 0.0f);
  for (Index i = 0; i < kColumns - 1; ++i) identity[static_cast<std::size_t>(i * 17)] = 1.0f;
  for (Index i = 0; i < kColumns; ++i) last[static_cast<std::size_t>(i * kColumns + 15)] = 1.0f;
  StoredMatrix gate, up;
  gate.rows = gate.cols = up.rows = up.cols = kColumns;
  gate.bytes = std::as_bytes(std::span(identity));
  up.bytes = std::as_bytes(std::span(last));
  const PackedMatrix weight = pack_gate_up(gate, up);
  const std::vector<float> x{-1e30f, -1000, -100, -88, -30, -5, -1,    -1e-6f,
                             0,      1e-6f, 1,    5,   30,  88, 1e30f, 1};
  std::vector<float> y(kColumns);
  GemmOutput output{.weight = &weight, .y = y.data(), .y_stride = kColumns};
  output.epilogue.activation = Activation::SiluGate;
  gemm(x.data(), 1, kColumns, output, serial_executor());
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    const double v = static_cast<double>(x[i]);
    const double wanted = v / (1 + std::exp(-v));
    EXPECT_NEAR(static_cast<double>(y[i]), wanted, 2e-6 * std::fabs(wanted) + 1e-7) << v;
  }
}

TEST(Epilogue, gate_up_and_plain_weights_do_not_mix) {
  const PackedMatrix plain = pack(make_weight("f32", 16, 8, 1).stored());
  const PackedMatrix gated =
      pack_gate_up(make_weight("f32", 16, 8, 1).stored(), make_weight("f32", 16, 8, 2).stored());
  const std::vector<float> x(8);
  std::vector<float> y(16);
  GemmOutput output{.weight = &gated, .y = y.data(), .y_stride = 16};
  EXPECT_THROW(gemm(x.data(), 1, 8, output, serial_executor()), Error);
  output.weight = &plain;
  output.epilogue.activation = Activation::SiluGate;
  EXPECT_THROW(gemm(x.data(), 1, 8, output, serial_executor()), Error);
}

// A product onto its own residual, whose chunks are computed again after they were stored.
TEST(Gemm, adds_the_residual_once_although_chunks_may_run_twice) {
  const PackedMatrix weight = pack(make_weight("q4_0", 640, 256, 1).stored());
  for (const Index rows : {1, 16, 17, 200, 400}) {
    const auto x = random_floats(rows * 256, 2);
    const auto product = [&](Executor& executor) {
      PackedRows packed;
      quantize_rows(x.data(), rows, 256, 256, packed, executor);
      std::vector<float> y(static_cast<std::size_t>(rows * 640), 0.5f);
      const GemmOutput output{.weight = &weight,
                              .y = y.data(),
                              .y_stride = 640,
                              .epilogue = {.residual = y.data(), .residual_stride = 640}};
      executor.wait_left(gemm({.x = packed,
                               .outputs = {&output, 1},
                               .executor = executor,
                               .wait_for_stragglers = rows % 2 == 0}));
      return y;
    };
    hone::test::StragglingExecutor late;
    EXPECT_EQ(product(late), product(serial_executor())) << rows << " rows";
    EXPECT_GT(late.recomputed(), 0);
  }
}

TEST(Gemm, a_ticket_may_be_waited_for_later) {
  const PackedMatrix weight = pack(make_weight("q4_0", 640, 256, 1).stored());
  ThreadPool pool(2);
  const auto x = random_floats(256, 2);
  PackedRows packed;
  quantize_rows(x.data(), 1, 256, 256, packed, pool);
  std::vector<float> late(640), waited(640);
  for (int round = 0; round < 50; ++round) {
    std::ranges::fill(late, -1.0f);
    std::ranges::fill(waited, -2.0f);
    const GemmOutput output{.weight = &weight, .y = late.data(), .y_stride = 640};
    const PublishTicket ticket = gemm(
        {.x = packed, .outputs = {&output, 1}, .executor = pool, .wait_for_stragglers = false});
    const GemmOutput again{.weight = &weight, .y = waited.data(), .y_stride = 640};
    gemm({.x = packed, .outputs = {&again, 1}, .executor = serial_executor()});
    ASSERT_EQ(late, waited);
    pool.wait_left(ticket);
  }
}

}  // namespace
}  // namespace hone::kernels

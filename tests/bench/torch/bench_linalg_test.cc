// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_linalg.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "hone/bench/torch/linalg_contestants.h"
#include "hone/bench/torch/linalg_work.h"
#include "hone/core/machine/clock.h"
#include "hone/measure/measure.h"
#include "hone/train/linalg/sketch_tensor.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::bench {
namespace {

using at::Tensor;
using test::error_of;
using testing::HasSubstr;

// From the definition.
double error_of_rank(const Tensor& a, Index rank) {
  const Tensor s = at::linalg_svdvals(a.to(at::kDouble));
  return s.slice(0, rank).norm().item<double>();
}

TEST(SpectralMatrix, has_the_singular_values_and_the_best_error_that_it_says) {
  for (const Spectrum spectrum : {Spectrum::Gaussian, Spectrum::Power, Spectrum::Step}) {
    for (const auto& [m, n] : {std::pair<Index, Index>{60, 40}, {40, 60}, {50, 50}}) {
      const SpectralMatrix matrix = make_matrix(spectrum, m, n, 12, at::kDouble);
      EXPECT_EQ(matrix.a.sizes(), (std::vector<std::int64_t>{m, n}));
      if (matrix.spectrum.defined()) {
        EXPECT_LE((at::linalg_svdvals(matrix.a) - matrix.spectrum).abs().max().item<double>(),
                  1e-13);
      }
      for (const Index rank : {1, 12, 39}) {
        const double want = error_of_rank(matrix.a, rank);
        EXPECT_NEAR(matrix.best_error(rank), want, 1e-10 * want) << m << " " << rank;
      }
      EXPECT_EQ(matrix.best_error(std::min(m, n)), 0);
    }
  }
  const Tensor step = make_matrix(Spectrum::Step, 30, 30, 4, at::kDouble).spectrum;
  EXPECT_EQ(step[3].item<double>(), 1);
  EXPECT_DOUBLE_EQ(step[4].item<double>(), 0.01);
}

TEST(LinalgMeasures, are_those_of_planted_errors) {
  const Tensor a = make_matrix(Spectrum::Power, 30, 20, 5, at::kDouble).a;
  auto [q, r] = at::linalg_qr(a);
  const Tensor order = at::arange(20, at::kLong);
  EXPECT_LE(residual(a, linalg::PivotedQr{q, r, order}), 1e-14);
  const Tensor moved = r.clone();
  moved[2][7] += 0.25;  // q has orthonormal columns
  EXPECT_NEAR(residual(a, linalg::PivotedQr{q, moved, order}), 0.25, 1e-12);
  EXPECT_NEAR(
      residual(a.index_select(1, order.flip(0)), linalg::PivotedQr{q, moved, order.flip(0)}), 0.25,
      1e-12);
  EXPECT_LE(orthogonality(q), 1e-13);
  EXPECT_NEAR(orthogonality(q * 2), 3 * std::sqrt(20.0), 1e-12);
  EXPECT_NEAR(distortion(q * at::linspace(0.8, 1.1, 20, at::kDouble)), 0.2, 1e-12);
  const Tensor triangle = at::diag(at::tensor({-3.0, 2.0, 1e-13, 1e-16}, at::kDouble));
  EXPECT_EQ(detected_rank(triangle), 3);
  EXPECT_EQ(detected_rank(triangle.to(at::kFloat)), 2);
  EXPECT_EQ(detected_rank(at::zeros({3, 3})), 0);
  EXPECT_EQ(relative_difference(q, q), 0);
  EXPECT_NEAR(relative_difference(q * 1.5, q), 0.5, 1e-13);
}

TEST(SvdLowrank, spans_what_the_operators_of_pytorch_span) {
  for (const auto& [m, n] : {std::pair<Index, Index>{70, 50}, {50, 70}}) {
    const Tensor a = make_matrix(Spectrum::Power, m, n, 5, at::kDouble).a;
    const linalg::Svd got = svd_lowrank(a, 8, 2, /*seed=*/5);
    EXPECT_EQ(got.u.sizes(), (std::vector<std::int64_t>{m, 8}));
    EXPECT_EQ(got.v.sizes(), (std::vector<std::int64_t>{n, 8}));
    EXPECT_LE(orthogonality(got.u) + orthogonality(got.v), 1e-12);
    // The formula in exact arithmetic: A projected to the range of (A A^T)^2 A R, of the tall side.
    const Tensor tall = m > n ? a : a.t();
    Tensor range = at::mm(
        tall, at::randn({std::min(m, n), 8}, at::detail::createCPUGenerator(5), at::kDouble));
    for (Index step = 0; step < 2; ++step) range = at::mm(tall, at::mm(tall.t(), range));
    const Tensor q = std::get<0>(at::linalg_qr(range));
    const Tensor want = at::mm(q, at::mm(q.t(), tall));
    const Tensor all = at::mm(got.u * got.s, got.v.t());
    EXPECT_LE(relative_difference(m > n ? all : all.t(), want), 1e-9);
    EXPECT_EQ(leading(got, 3).s.numel(), 3);
  }
}

TEST(CheapestSvdLowrank, reaches_the_error_and_nothing_cheaper_does) {
  const SpectralMatrix matrix = make_matrix(Spectrum::Gaussian, 90, 80, 10, at::kDouble);
  const double most = 1.01 * matrix.best_error(10);
  const auto found = cheapest_svd_lowrank(matrix.a, 10, most);
  ASSERT_TRUE(found);
  const auto error = [&](Index oversample, Index niter) {
    return residual(matrix.a, leading(svd_lowrank(matrix.a, 10 + oversample, niter), 10));
  };
  EXPECT_LE(error(found->oversample, found->niter), most);
  EXPECT_GT(error(0, 0), most) << "or the search has nothing to find";
  // Settings that take no more of one kind of work and less of the other.
  if (found->niter > 0) {
    EXPECT_GT(error(found->oversample, found->niter - 1), most);
  }
  for (const Index fewer : {0, 5, 10, 20}) {
    if (fewer < found->oversample) {
      EXPECT_GT(error(fewer, found->niter), most) << fewer;
    }
  }
  EXPECT_FALSE(cheapest_svd_lowrank(matrix.a, 10, 0.999 * matrix.best_error(10)));
}

TEST(SrhtLoop, is_the_product_with_the_operator) {
  for (const Index cols : {16, 23}) {
    const kernels::SketchOp op{
        .kind = kernels::SketchKind::Srht, .rows = 7, .cols = cols, .seed = 3};
    const Tensor a = gaussian_matrix(5, cols, 4, at::kDouble);
    const Tensor want = at::mm(a, linalg::dense(op, at::TensorOptions(at::kDouble)).t());
    EXPECT_LE(relative_difference(srht_loop(a, op), want), 1e-14);
    EXPECT_LE(relative_difference(srht_loop(a.to(at::kFloat), op), want), 1e-6);
  }
}

Json measured_linalg(const BenchLinalgOptions& options) {
  const auto measurer = measure::make_measurer();
  BenchRun run(*measurer, {.quick = true, .repeat = 1});
  bench_linalg(options, run);
  return run.report();
}

std::set<std::string> names_of(const Json& report) {
  std::set<std::string> names;
  for (const Json& row : report.at("rows")) {
    names.insert(row.at("case").get<std::string>() + " " + row.at("impl").get<std::string>());
  }
  return names;
}

// Every time stands beside an error, and none of them is that of a wrong result. Only the
// contestant `absent` has none.
void expect_errors(const Json& report, double most, const char* absent) {
  for (const Json& row : report.at("rows")) {
    EXPECT_EQ(row.contains("status"), row.at("impl") == absent) << row;
    if (row.contains("status")) continue;
    EXPECT_GT(row.at("median_ms").get<double>(), 0) << row;
    EXPECT_LE(row.at("rel_error").get<double>(), most) << row;
    EXPECT_TRUE(row.at("provider").is_string()) << row;
  }
}

TEST(BenchLinalg, rows_of_low_rank_approximations_have_equal_errors) {
  const Json report = measured_linalg({.ops = {"rsvd"},
                                       .shapes = {"120x90", "90x120"},
                                       .rank = 10,
                                       .dtypes = {"f32", "f64"},
                                       .spectra = {"gaussian", "power", "step"},
                                       .threads = 1});
  std::size_t beside = 0;
  double own = 0;
  for (const Json& row : report.at("rows")) {
    if (row.contains("status")) continue;
    const double over = row.at("error_over_optimum");
    EXPECT_GE(over, 1 - 1e-4) << row;
    EXPECT_LE(over, 1.1) << row;
    EXPECT_LE(row.at("orthogonality").get<double>(), 1e-3) << row;
    if (row.at("impl") == "hone") own = over;
    if (row.at("impl") == "svd") {
      EXPECT_NEAR(over, 1, 1e-4) << row;
    }
    if (row.at("impl") != "svd_lowrank") continue;
    EXPECT_LE(over, own * 1.0011) << row;
    EXPECT_GE(row.at("niter"), 0);
    EXPECT_GE(row.at("oversample"), 0);
    ++beside;
  }
  EXPECT_GE(beside, 10u) << "of 12 cases";
  EXPECT_EQ(report.at("rows").size(), 2u * 12u + 2u * 12u);
}

TEST(BenchLinalg, every_operation_stands_beside_what_does_the_same_work) {
  ::setenv("HONE_PEER_PYTHON", "/nonexistent", 1);
  const Json report = measured_linalg({.ops = {"cqrrpt", "qrcp", "lstsq", "srht", "sparse"},
                                       .shapes = {"300x64"},
                                       .rank = 20,
                                       .dtypes = {"f64"},
                                       .spectra = {"power"},
                                       .threads = 1});
  ::unsetenv("HONE_PEER_PYTHON");
  expect_errors(report, 1e-10, "geqp3");
  EXPECT_THAT(
      names_of(report),
      testing::UnorderedElementsAre(
          "cqrrpt/300x64/f64/power hone", "cqrrpt/300x64/f64/power qr",
          "cqrrpt/300x64/f64/power geqp3", "qrcp/300x64/f64/power hone", "qrcp/300x64/f64/power qr",
          "qrcp/300x64/f64/power geqp3", "lstsq/300x64/f64/power hone",
          "lstsq/300x64/f64/power gelsy", "lstsq/300x64/f64/power qr", "srht/300x64/f64 hone",
          "srht/300x64/f64 loop", "srht/300x64/f64 dense", "srht/300x64/f64/fwht hone",
          "srht/300x64/f64/fwht loop", "sparse/300x64/f64 hone", "sparse/300x64/f64 sparse_mm",
          "sparse/300x64/f64 dense"));
  for (const Json& row : report.at("rows")) {
    const std::string name = row.at("case");
    if (row.at("impl") == "geqp3") {
      EXPECT_EQ(row.at("status"), "absent");
      continue;
    }
    if (name.find("qr") != std::string::npos) {
      EXPECT_LE(row.at("orthogonality").get<double>(), 1e-12) << row;
      EXPECT_EQ(row.contains("detected_rank"), row.at("impl") == "hone") << row;
    }
    if (row.contains("detected_rank")) {
      EXPECT_EQ(row.at("detected_rank"), 64) << row;
    }
    if (name.starts_with("lstsq")) {
      EXPECT_NEAR(row.at("error_over_optimum").get<double>(), 1, 1e-10) << row;
    }
    if (row.contains("distortion")) {
      EXPECT_GT(row.at("distortion").get<double>(), 0) << row;
      EXPECT_LT(row.at("distortion").get<double>(), 1.5) << row;
    }
  }
}

TEST(BenchLinalg, a_transform_of_other_lengths_than_powers_of_two_is_skipped) {
  const Json report = measured_linalg(
      {.ops = {"srht"}, .shapes = {"40x48"}, .rank = 20, .against = {}, .threads = 1});
  ASSERT_EQ(report.at("rows").size(), 2u);
  EXPECT_EQ(report.at("rows")[1].at("status"), "skipped: no power of two of columns");
  expect_errors({{"rows", Json::array({report.at("rows")[0]})}}, 1e-6, "none");
}

// A shell script in the place of pivoted_qr.py, which looks at the file that it is given.
TEST(BenchLinalg, a_process_with_geqp3_gets_the_matrix_and_tells_its_errors) {
  const test::TemporaryFolder folder;
  ::setenv("HONE_PEER_PYTHON", "/bin/sh", 1);
  ::setenv("HONE_PEERS", folder.path().c_str(), 1);
  std::ofstream(folder.path() / "pivoted_qr.py") << R"(
test "$1 $3 $4 $5 $6 $7 $8 $9" = "--matrix --rows 50 --cols 20 --dtype f64 --threads" || exit 1
size=$(wc -c < "$2")
echo '{"ready":true,"provider":"scripted","rel_error":1e-9,"detected_rank":'$size'}'
while read question; do echo '{"seconds":0.5}'; done
)";
  const Json report = measured_linalg({.ops = {"qrcp"},
                                       .shapes = {"50x20"},
                                       .dtypes = {"f64"},
                                       .against = {"geqp3"},
                                       .threads = 1});
  ::unsetenv("HONE_PEER_PYTHON");
  ::unsetenv("HONE_PEERS");
  ASSERT_EQ(report.at("rows").size(), 2u);
  const Json& row = report.at("rows")[1];
  EXPECT_EQ(row.at("impl"), "geqp3");
  EXPECT_EQ(row.at("median_ms"), 500);
  EXPECT_EQ(row.at("provider"), "scripted");
  EXPECT_EQ(row.at("detected_rank"), 50 * 20 * 8) << "bytes of the file";
}

TEST(BenchLinalg, refuses_by_name_before_it_measures) {
  const auto refused = [](const BenchLinalgOptions& options) {
    return error_of([&] { measured_linalg(options); });
  };
  EXPECT_THAT(refused({.ops = {"svd"}}),
              HasSubstr("rsvd, cqrrpt, qrcp, lstsq, srht or sparse, got svd"));
  EXPECT_THAT(refused({.ops = {"srht", "?"}}), HasSubstr("got ?"));
  for (const char* shape : {"0x5", "5x0", "-1x5", "5", "x", "5x", "x5", "5x5x5", "nan", "5x5 ",
                            "99999999999999999999x5", "1000000x1000000"}) {
    EXPECT_THAT(refused({.shapes = {shape}}), HasSubstr(std::string("got ") + shape)) << shape;
  }
  EXPECT_THAT(refused({.ops = {"rsvd"}, .shapes = {"50x60"}, .rank = 51}),
              HasSubstr("a rank of 1 to 50 for rsvd of 50x60, got 51"));
  EXPECT_THAT(refused({.ops = {"rsvd"}, .rank = 0}), HasSubstr("got 0"));
  EXPECT_THAT(refused({.ops = {"srht"}, .shapes = {"9x8"}, .rank = 9}), HasSubstr("got 9"));
  EXPECT_THAT(refused({.ops = {"qrcp"}, .shapes = {"9x8"}, .rank = 9, .spectra = {"step"}}),
              HasSubstr("got 9"));
  EXPECT_THAT(refused({.ops = {"lstsq"}, .shapes = {"8x9"}}), HasSubstr("got 8x9"));
  EXPECT_THAT(refused({.ops = {"sparse"}, .shapes = {"9x8"}}), HasSubstr("got 9x8"));
  EXPECT_THAT(refused({.dtypes = {"f16"}}), HasSubstr("f32 or f64, got f16"));
  EXPECT_THAT(refused({.spectra = {"flat"}}), HasSubstr("gaussian, power or step, got flat"));
  EXPECT_THAT(refused({.against = {"hone"}}), HasSubstr("got hone"));
}

}  // namespace
}  // namespace hone::bench

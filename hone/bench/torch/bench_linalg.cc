// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_linalg.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

#include "hone/bench/torch/linalg_contestants.h"
#include "hone/bench/torch/linalg_work.h"
#include "hone/bench/torch/optim_contestants.h"
#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/kernels/sketch/apply.h"
#include "hone/kernels/sketch/hadamard.h"
#include "hone/train/interop.h"
#include "hone/train/linalg/cqrrpt.h"
#include "hone/train/linalg/lstsq.h"
#include "hone/train/linalg/sketch_tensor.h"

namespace hone::bench {
namespace {

using at::Tensor;

constexpr std::string_view kLinalg = "bench linalg";
constexpr Index kMostEntries = Index{1} << 28;
constexpr double kHair = 1.001;  // over hone's error
constexpr std::array<std::string_view, 8> kLinalgWays{"svd",   "svd_lowrank", "qr",   "geqp3",
                                                      "gelsy", "dense",       "loop", "sparse_mm"};
constexpr std::uint64_t kSolutionSeed = 21, kNoiseSeed = 22, kSketchSeed = 23;
constexpr double kNoise = 0.1;
constexpr Index kNonzeros = 4, kSampledRows = 8;

struct Shape {
  Index m = 0, n = 0;
};

struct Work {
  const BenchLinalgOptions* options = nullptr;
  std::string op, dtype, spectrum;
  Shape shape = {};

  at::ScalarType type() const { return dtype == "f32" ? at::kFloat : at::kDouble; }
  bool has(std::string_view way) const {
    return std::ranges::find(options->against, way) != options->against.end();
  }
  BenchCase new_case() const {
    BenchCase bench_case;
    bench_case.name = concat(op, "/", shape.m, "x", shape.n, "/", dtype);
    if (!spectrum.empty()) bench_case.name += "/" + spectrum;
    return bench_case;
  }
  SpectralMatrix matrix() const {
    return make_matrix(spectrum.empty() ? Spectrum::Gaussian : parse_spectrum(spectrum), shape.m,
                       shape.n, options->rank, type());
  }
};

void add(BenchCase& bench_case, const std::string& name, std::function<void()> run, Json facts) {
  bench_case.contestants.push_back({.name = name, .run = std::move(run)});
  bench_case.ours.push_back(name == "hone");
  bench_case.extra.push_back(std::move(facts));
}

void add_rsvd(const Work& work, BenchRun& run) {
  const SpectralMatrix matrix = work.matrix();
  const Tensor& a = matrix.a;
  const Index rank = work.options->rank;
  const double norm = frobenius(a), best = matrix.best_error(rank);
  const auto facts = [&](const linalg::Svd& svd, const char* provider) {
    const double error = residual(a, svd);
    Json row{{"rel_error", error / norm}};
    if (best > 0) row["error_over_optimum"] = error / best;
    row["orthogonality"] = std::max(orthogonality(svd.u), orthogonality(svd.v));
    row["provider"] = provider;
    return row;
  };
  const auto ours = [a, rank] { return linalg::randomized_svd(a, {.rank = rank}); };
  const Json own = facts(ours(), "hone");
  BenchCase bench_case = work.new_case();
  add(bench_case, "hone", ours, own);
  if (work.has("svd_lowrank")) {
    const double most = own["rel_error"].get<double>() * norm * kHair;
    if (const auto found = cheapest_svd_lowrank(a, rank, most)) {
      const auto theirs = [a, rank, settings = *found] {
        return leading(svd_lowrank(a, rank + settings.oversample, settings.niter), rank);
      };
      Json row = facts(theirs(), "torch.svd_lowrank's formula");
      row["niter"] = found->niter;
      row["oversample"] = found->oversample;
      add(bench_case, "svd_lowrank", theirs, std::move(row));
    } else {
      bench_case.skipped.emplace_back("svd_lowrank", "no settings have an error as low as hone's");
    }
  }
  run.add(bench_case);
  if (!work.has("svd")) return;
  BenchCase whole = work.new_case();  // takes so long that caches are cold for the others
  whole.name += "/svd";
  const auto all = [a] {
    auto [u, s, vh] = at::linalg_svd(a, /*full_matrices=*/false);
    return linalg::Svd{u, s, vh.t()};
  };
  add(whole, "hone", ours, own);
  add(whole, "svd", all, facts(leading(all(), rank), "LAPACK of LibTorch, gesdd"));
  run.add(whole);
}

void add_qr(const Work& work, BenchRun& run) {
  const Tensor a = work.matrix().a;
  const double norm = frobenius(a);
  const auto facts = [&](const linalg::PivotedQr& qr, const char* provider) {
    return Json{{"rel_error", residual(a, qr) / norm},
                {"orthogonality", orthogonality(qr.q)},
                {"provider", provider}};
  };
  const auto ours = [a, is_sketched = work.op == "cqrrpt"] {
    return is_sketched ? linalg::cqrrpt(a) : linalg::pivoted_qr(a);
  };
  BenchCase bench_case = work.new_case();
  const linalg::PivotedQr own = ours();
  Json row = facts(own, "hone");
  row["detected_rank"] = detected_rank(own.r);
  add(bench_case, "hone", ours, std::move(row));
  if (work.has("qr")) {
    const auto theirs = [a] {
      auto [q, r] = at::linalg_qr(a);
      return linalg::PivotedQr{q, r, {}};
    };
    linalg::PivotedQr qr = theirs();
    qr.pivots = at::arange(a.size(1), at::kLong);
    add(bench_case, "qr", theirs, facts(qr, "LAPACK of LibTorch, geqrf"));
  }
  if (work.has("geqp3")) add_geqp3(a, at::get_num_threads(), bench_case);
  run.add(bench_case);
}

void add_lstsq(const Work& work, BenchRun& run) {
  const Tensor a = work.matrix().a;
  const Index m = work.shape.m, n = work.shape.n;
  const Tensor exact = a.to(at::kDouble);
  const Tensor reached = at::mm(exact, gaussian_matrix(n, 1, kSolutionSeed, at::kDouble));
  const Tensor noise = gaussian_matrix(m, 1, kNoiseSeed, at::kDouble);
  const Tensor b =
      (reached + noise * (kNoise * frobenius(reached) / frobenius(noise))).to(a.dtype());
  const auto solve = [](const Tensor& left, const Tensor& right, const char* driver) {
    return std::get<0>(at::linalg_lstsq(left, right, std::nullopt, driver));
  };
  const Tensor target = b.to(at::kDouble), wanted = solve(exact, target, "gelsd");
  const double least = frobenius(at::mm(exact, wanted) - target);
  const auto facts = [&](const Tensor& x, const char* provider) {
    const double error = frobenius(at::mm(exact, x.to(at::kDouble)) - target);
    Json row{{"rel_error", relative_difference(x, wanted)}};
    if (least > 0) row["error_over_optimum"] = error / least;
    row["provider"] = provider;
    return row;
  };
  const auto ours = [a, b] { return linalg::lstsq_sketched(a, b); };
  BenchCase bench_case = work.new_case();
  const linalg::LstsqResult own = ours();
  Json row = facts(own.x, "hone");
  row["detected_rank"] = own.rank;
  row["iterations"] = own.iterations;
  add(bench_case, "hone", ours, std::move(row));
  for (const auto& [way, driver] :
       {std::pair<const char*, const char*>{"gelsy", "gelsy"}, {"qr", "gels"}}) {
    if (!work.has(way)) continue;
    const auto theirs = [solve, a, b, name = driver] { return solve(a, b, name); };
    add(bench_case, way, theirs,
        facts(theirs(), std::string("LAPACK of LibTorch, ").append(driver).c_str()));
  }
  run.add(bench_case);
}

// The Hadamard transform of each row in place, scaled before each run so that it does not overflow.
void add_fwht(const Work& work, const Tensor& a, const kernels::MemoryProbe& memory,
              BenchRun& run) {
  BenchCase bench_case = work.new_case();
  bench_case.name += "/fwht";
  const Index n = work.shape.n;
  if ((n & (n - 1)) != 0) {
    bench_case.skipped.emplace_back("hone", "no power of two of columns");
    run.add(bench_case);
    return;
  }
  const auto bytes = static_cast<Index>(a.nbytes());
  bench_case.bytes = 2 * static_cast<double>(bytes);
  bench_case.no_memory_share = kernels::why_no_memory_share(bytes, cpu_info().last_cache_bytes);
  if (bench_case.no_memory_share.empty()) bench_case.memory = &memory;
  const Index checked = std::min(kSampledRows, a.size(0));
  Tensor wanted = a.narrow(0, 0, checked).to(at::kDouble).clone();
  kernels::fwht_rows_ref(view_of(wanted, "the rows"));
  const auto add_way = [&](const std::string& name, auto transform, const char* provider) {
    const Tensor x = a.clone();
    transform(x);
    Json facts{{"rel_error", relative_difference(x.narrow(0, 0, checked), wanted)},
               {"provider", provider}};
    add(
        bench_case, name, [x, transform] { transform(x); }, std::move(facts));
    bench_case.contestants.back().prepare = [x, n] { x.mul_(1 / std::sqrt(double(n))); };
  };
  add_way(
      "hone", [](const Tensor& x) { kernels::fwht_rows(view_of(x, "x"), libtorch_executor()); },
      "hone");
  if (work.has("loop")) {
    add_way(
        "loop", [](const Tensor& x) { kernels::fwht_rows_ref(view_of(x, "x")); },
        "the textbook loop");
  }
  run.add(bench_case);
}

void add_srht(const Work& work, BenchRun& run) {
  const Tensor a = work.matrix().a;
  const kernels::SketchOp op{.kind = kernels::SketchKind::Srht,
                             .rows = work.options->rank,
                             .cols = work.shape.n,
                             .seed = kSketchSeed};
  const Tensor wanted =
      at::mm(a.to(at::kDouble), linalg::dense(op, at::TensorOptions(at::kDouble)).t());
  BenchCase bench_case = work.new_case();
  const auto add_way = [&](const std::string& name, const std::function<Tensor()>& sketch,
                           const char* provider) {
    add(bench_case, name, sketch,
        {{"rel_error", relative_difference(sketch(), wanted)}, {"provider", provider}});
  };
  add_way(
      "hone",
      [a, op] {
        const Tensor out = at::empty({a.size(0), op.rows}, a.options());
        kernels::apply_right(op, kernels::Transpose::Yes, view_of(a, "A"), view_of(out, "out"),
                             libtorch_executor());
        return out;
      },
      "hone");
  if (work.has("loop")) {
    add_way(
        "loop", [a, op] { return srht_loop(a, op); }, "the textbook loop");
  }
  if (work.has("dense")) {
    const Tensor s_t = linalg::dense(op, a.options()).t();
    add_way(
        "dense", [a, s_t] { return at::mm(a, s_t); }, "BLAS of LibTorch, S in memory");
  }
  run.add(bench_case);
  const auto memory =
      kernels::make_memory_probe(kernels::MemoryTraffic::Update, libtorch_executor());
  add_fwht(work, a, memory, run);
}

Index sparse_rows(Index n) { return n + ceil_div(n, Index{4}); }

void add_sparse(const Work& work, BenchRun& run) {
  const Tensor a = work.matrix().a;
  const Tensor exact = a.to(at::kDouble), basis = std::get<0>(at::linalg_qr(exact));
  kernels::SketchOp op{.kind = kernels::SketchKind::SparseSign,
                       .rows = sparse_rows(work.shape.n),
                       .cols = work.shape.m,
                       .seed = kSketchSeed,
                       .nnz = std::min(kNonzeros, sparse_rows(work.shape.n))};
  const auto apply = [](const kernels::SketchOp& s, const Tensor& x) {
    const Tensor out = at::empty({s.rows, x.size(1)}, x.options());
    kernels::apply_left(s, kernels::Transpose::No, view_of(x, "A"), view_of(out, "out"),
                        libtorch_executor());
    return out;
  };
  BenchCase bench_case = work.new_case();
  const auto add_way = [&](const std::string& name, const std::function<Tensor()>& sketch,
                           const Tensor& s, const char* provider) {
    const Tensor s64 = s.to(at::kDouble);
    add(bench_case, name, sketch,
        {{"rel_error", relative_difference(sketch(), at::mm(s64, exact))},
         {"distortion", distortion(at::mm(s64, basis))},
         {"provider", provider}});
  };
  const Tensor s = linalg::dense(op, a.options());
  add_way(
      "hone", [apply, op, a] { return apply(op, a); }, s, "hone");
  if (work.has("sparse_mm")) {
    const Tensor csr = s.to_sparse_csr();
    add_way(
        "sparse_mm", [csr, a] { return at::mm(csr, a); }, s,
        "sparse product of LibTorch, S in memory");
  }
  if (work.has("dense")) {
    op.kind = kernels::SketchKind::Gaussian;
    const Tensor gaussian = linalg::dense(op, a.options());
    add_way(
        "dense", [gaussian, a] { return at::mm(gaussian, a); }, gaussian,
        "BLAS of LibTorch, Gaussian S in memory");
  }
  run.add(bench_case);
}

struct Operation {
  const char* name;
  Shape shape;
  bool has_spectrum;
  void (*add)(const Work&, BenchRun&);
};
constexpr std::array<Operation, 6> kOperations{{{"rsvd", {2000, 2000}, true, add_rsvd},
                                                {"cqrrpt", {8192, 256}, true, add_qr},
                                                {"qrcp", {2048, 256}, true, add_qr},
                                                {"lstsq", {8192, 256}, true, add_lstsq},
                                                {"srht", {8192, 4096}, false, add_srht},
                                                {"sparse", {65536, 256}, false, add_sparse}}};

const Operation& operation_of(const std::string& name) {
  for (const Operation& operation : kOperations) {
    if (name == operation.name) return operation;
  }
  fail_argument(kLinalg, "rsvd, cqrrpt, qrcp, lstsq, srht or sparse", name);
}

Shape parse_matrix_shape(const std::string& text) {
  Shape shape;
  const char* end = text.data() + text.size();
  const auto rows = std::from_chars(text.data(), end, shape.m);
  const bool has_cross = rows.ec == std::errc() && rows.ptr != end && *rows.ptr == 'x';
  const auto cols = std::from_chars(has_cross ? rows.ptr + 1 : end, end, shape.n);
  HONE_CHECK(has_cross && cols.ec == std::errc() && cols.ptr == end && shape.m > 0 && shape.n > 0 &&
                 shape.m <= kMostEntries / shape.n,
             kLinalg, concat("a shape like 8192x256 of at most ", kMostEntries, " entries"), text);
  return shape;
}

std::vector<Shape> shapes_of(const BenchLinalgOptions& options, const Operation& operation) {
  if (options.shapes.empty()) return {operation.shape};
  std::vector<Shape> shapes;
  std::ranges::transform(options.shapes, std::back_inserter(shapes), parse_matrix_shape);
  return shapes;
}

void check_shape(const BenchLinalgOptions& options, const std::string& op, const Shape& shape) {
  const bool has_step = std::ranges::find(options.spectra, "step") != options.spectra.end();
  if (op == "rsvd" || op == "srht" || (has_step && op != "sparse")) {
    const Index most = op == "srht" ? shape.n : std::min(shape.m, shape.n);
    HONE_CHECK(options.rank > 0 && options.rank <= most, kLinalg,
               concat("a rank of 1 to ", most, " for ", op, " of ", shape.m, "x", shape.n),
               options.rank);
  }
  HONE_CHECK(op != "lstsq" || shape.m >= shape.n, kLinalg,
             "at least as many rows as columns for lstsq", concat(shape.m, "x", shape.n));
  HONE_CHECK(op != "sparse" || shape.m >= sparse_rows(shape.n), kLinalg,
             "at least 1.25 times as many rows as columns for sparse",
             concat(shape.m, "x", shape.n));
}

void check(const BenchLinalgOptions& options) {
  for (const std::string& dtype : options.dtypes) {
    HONE_CHECK(dtype == "f32" || dtype == "f64", kLinalg, "f32 or f64", dtype);
  }
  for (const std::string& spectrum : options.spectra) parse_spectrum(spectrum);
  for (const std::string& way : options.against) {
    HONE_CHECK(std::ranges::find(kLinalgWays, way) != kLinalgWays.end(), kLinalg,
               "svd, svd_lowrank, qr, geqp3, gelsy, dense, loop or sparse_mm", way);
  }
  for (const std::string& op : options.ops) {
    for (const Shape& shape : shapes_of(options, operation_of(op))) check_shape(options, op, shape);
  }
}

}  // namespace

void bench_linalg(const BenchLinalgOptions& options, BenchRun& run) {
  check(options);
  set_torch_threads(options.threads > 0 ? options.threads : usable_cpus());
  const c10::NoGradGuard no_grad;
  for (const std::string& op : options.ops) {
    const Operation& operation = operation_of(op);
    const std::vector<std::string> spectra =
        operation.has_spectrum ? options.spectra : std::vector<std::string>{""};
    for (const Shape& shape : shapes_of(options, operation)) {
      for (const std::string& dtype : options.dtypes) {
        for (const std::string& spectrum : spectra) {
          operation.add({&options, op, dtype, spectrum, shape}, run);
        }
      }
    }
  }
}

}  // namespace hone::bench

// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/linalg_contestants.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "hone/bench/peer_process.h"
#include "hone/bench/torch/linalg_work.h"
#include "hone/core/check.h"
#include "hone/kernels/sketch/hadamard.h"
#include "hone/kernels/sketch/sketch_draw.h"
#include "hone/train/interop.h"

namespace hone::bench {
namespace {

using at::Tensor;

constexpr Index kMostIterations = 10;

Tensor basis_of(const Tensor& x) { return std::get<0>(at::linalg_qr(x)); }

// Operations of the products with A and the QR factorizations of its sketches, with q formed.
double operations(const Tensor& a, Index q, Index niter) {
  const auto m = static_cast<double>(a.size(0)), n = static_cast<double>(a.size(1));
  const auto width = static_cast<double>(q), steps = static_cast<double>(niter);
  return 4 * (1 + steps) * m * n * width + 4 * width * width * ((1 + steps) * m + steps * n);
}

// A file that only this user can read, until the object's end.
class MatrixFile {
 public:
  explicit MatrixFile(const Tensor& a)
      : path_((std::filesystem::temp_directory_path() / "hone-matrix-XXXXXX").string()) {
    const int file = ::mkstemp(path_.data());
    if (file < 0) fail(ErrorCategory::Internal, "bench linalg", "No temporary file can be made.");
    ::close(file);
    const Tensor dense = a.contiguous();
    std::ofstream out(path_, std::ios::binary);
    out.write(static_cast<const char*>(dense.const_data_ptr()),
              static_cast<std::streamsize>(dense.nbytes()));
  }
  MatrixFile(const MatrixFile&) = delete;
  MatrixFile& operator=(const MatrixFile&) = delete;
  ~MatrixFile() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

template <class T>
void srht_row(const T* x, const kernels::SrhtPlan& plan, const kernels::SketchOp& op,
              const Tensor& padded, T* out) {
  T* y = padded.mutable_data_ptr<T>();
  for (Index j = 0; j < op.cols; ++j) y[j] = plan.is_negative(j) ? -x[j] : x[j];
  std::fill(y + op.cols, y + plan.length, T{0});
  kernels::fwht_rows_ref(view_of(padded, "the row"));
  const T scale = static_cast<T>(kernels::entry_scale(op));
  for (Index i = 0; i < op.rows; ++i) out[i] = scale * y[plan.rows[static_cast<std::size_t>(i)]];
}

template <class T>
void srht_rows(const Tensor& a, const kernels::SketchOp& op, Tensor& out) {
  const kernels::SrhtPlan plan(op);
  const Tensor padded = at::empty({1, plan.length}, a.options());
  for (Index row = 0; row < a.size(0); ++row) {
    srht_row<T>(a.const_data_ptr<T>() + row * op.cols, plan, op, padded,
                out.mutable_data_ptr<T>() + row * op.rows);
  }
}

}  // namespace

linalg::Svd svd_lowrank(const Tensor& a, Index q, Index niter, std::uint64_t seed) {
  const bool is_wide = a.size(0) < a.size(1);
  const Tensor tall = is_wide ? a.t() : a;
  const Tensor test_matrix =
      at::randn({tall.size(1), q}, at::detail::createCPUGenerator(seed), tall.options());
  Tensor basis = basis_of(at::mm(tall, test_matrix));
  for (Index step = 0; step < niter; ++step) {
    basis = basis_of(at::mm(tall.t(), basis));
    basis = basis_of(at::mm(tall, basis));
  }
  const auto [u, s, vh] = at::linalg_svd(at::mm(basis.t(), tall), /*full_matrices=*/false);
  linalg::Svd svd{at::mm(basis, u), s, vh.t()};
  if (is_wide) std::swap(svd.u, svd.v);
  return svd;
}

linalg::Svd leading(const linalg::Svd& svd, Index rank) {
  return {svd.u.narrow(1, 0, rank), svd.s.narrow(0, 0, rank), svd.v.narrow(1, 0, rank)};
}

std::optional<LowrankSettings> cheapest_svd_lowrank(const Tensor& a, Index rank, double most) {
  const Index smaller = std::min(a.size(0), a.size(1));
  std::vector<LowrankSettings> settings;
  for (const Index more : std::array<Index, 7>{0, 10, 20, rank / 2, rank, 2 * rank, 3 * rank}) {
    for (Index niter = 0; niter <= kMostIterations; ++niter) {
      if (rank + more <= smaller) settings.push_back({more, niter});
    }
  }
  std::ranges::sort(settings, {}, [&](const LowrankSettings& s) {
    return operations(a, rank + s.oversample, s.niter);
  });
  for (const LowrankSettings& s : settings) {
    const auto svd = leading(svd_lowrank(a, rank + s.oversample, s.niter), rank);
    if (residual(a, svd) <= most) return s;
  }
  return std::nullopt;
}

void add_geqp3(const Tensor& a, int threads, BenchCase& bench_case) {
  const auto python = peer_python(), script = peer_script("pivoted_qr.py");
  std::unique_ptr<PeerProcess> peer;
  if (!python.empty() && !script.empty()) {
    const MatrixFile file(a);
    peer = PeerProcess::try_start({python.string(), script.string(), "--matrix", file.path(),
                                   "--rows", concat(a.size(0)), "--cols", concat(a.size(1)),
                                   "--dtype", a.scalar_type() == at::kFloat ? "f32" : "f64",
                                   "--threads", concat(threads)});
  }
  add_peer("geqp3", std::move(peer), bench_case);
}

Tensor srht_loop(const Tensor& a, const kernels::SketchOp& op) {
  Tensor out = at::empty({a.size(0), op.rows}, a.options());
  if (a.scalar_type() == at::kFloat) {
    srht_rows<float>(a.contiguous(), op, out);
  } else {
    srht_rows<double>(a.contiguous(), op, out);
  }
  return out;
}

}  // namespace hone::bench

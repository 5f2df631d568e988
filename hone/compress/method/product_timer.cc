// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/product_timer.h"

#include <algorithm>
#include <array>

#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/kernels/gemm/gemm.h"

namespace hone::compress {
namespace {

// The packed weights of one state of the model.
class Products {
 public:
  Products(const Model& model, std::span<const Index> which, Executor& executor)
      : executor_(executor) {
    Index widest_in = 0, widest_out = 0;
    Progress progress("packing", std::ssize(which), "matrices");
    for (const Index at : which) {
      const StoredMatrix& matrix = model.tensors()[static_cast<std::size_t>(at)].matrix;
      weights_.push_back(kernels::pack(matrix, executor));
      widest_in = std::max(widest_in, matrix.cols);
      widest_out = std::max(widest_out, matrix.rows);
      progress.update(std::ssize(weights_));
    }
    x_.assign(static_cast<std::size_t>(widest_in), 0.5f);
    y_.resize(static_cast<std::size_t>(widest_out));
  }

  void run() {
    for (const kernels::PackedMatrix& weight : weights_) {
      kernels::gemm(x_.data(), 1, weight.cols(),
                    {.weight = &weight, .y = y_.data(), .y_stride = weight.rows(), .epilogue = {}},
                    executor_);
    }
  }

 private:
  Executor& executor_;
  std::vector<kernels::PackedMatrix> weights_;
  std::vector<float> x_, y_;
};

std::vector<Index> matrices_that_differ(const Model& model, const Model& other) {
  std::vector<Index> found = model.changed_from(other);
  std::erase_if(found,
                [&](Index at) { return model.tensors()[static_cast<std::size_t>(at)].is_vector; });
  return found;
}

Spread in_milliseconds(Spread seconds) {
  return {seconds.median * 1e3, seconds.p10 * 1e3, seconds.p90 * 1e3, seconds.n};
}

}  // namespace

void time_products(const Model& before, const Model& after, Context& context, PassRecord& record) {
  const std::vector<Index> old_ones = matrices_that_differ(before, after),
                           new_ones = matrices_that_differ(after, before);
  if (old_ones.empty() || new_ones.empty()) return;
  HONE_TRACE_ZONE("time products", {"matrices", new_ones.size()});
  Products old_products(before, old_ones, context.executor);
  Products new_products(after, new_ones, context.executor);
  Progress progress("timing products", 0, "rounds");
  const std::array<Contestant, 2> contestants{
      {{"before", [&] { old_products.run(); }, {}}, {"after", [&] { new_products.run(); }, {}}}};
  const Measurement measurement = context.measurer.measure(
      contestants,
      {.min_samples = 30, .max_seconds = 3, .on_round = [&](Index n) { progress.update(n); }});
  record.ms_before = in_milliseconds(context.measurer.spread(measurement.seconds[0]));
  record.ms_after = in_milliseconds(context.measurer.spread(measurement.seconds[1]));
  record.speedup = context.measurer.speedup(measurement, 1, 0);
}

}  // namespace hone::compress

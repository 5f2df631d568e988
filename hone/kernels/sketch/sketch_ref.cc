// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "hone/kernels/sketch/hadamard.h"
#include "hone/kernels/sketch/sketch_draw.h"

namespace hone::kernels {
namespace {

constexpr std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// Box and Muller, "A note on the generation of random normal deviates", 1958: pairs of words are a
// radius and an angle, whose highest two bits are the quadrant.
double gaussian_ref(const SketchOp& op, Index row, Index col) {
  const PhiloxBlock words = philox(op.seed, sketch_counter(op, row, col / kGaussiansPerBlock));
  const Index pair = col % kGaussiansPerBlock / 2 * 2;
  const std::uint32_t angle = words[at(pair + 1)];
  const double radius = std::sqrt(-2 * std::log((words[at(pair)] >> 9) * 0x1p-23 + 0x1p-24));
  const double turn = static_cast<std::int32_t>(angle << 2 | 2) * 0x1p-31;
  const double phi = (std::numbers::pi / 4) * (2.0 * (angle >> 30) + turn);
  return radius * (col % 2 == 0 ? std::cos(phi) : std::sin(phi));
}

double sign_ref(const SketchOp& op, Index row, Index col) {
  const PhiloxBlock words = philox(op.seed, sketch_counter(op, row, col / kSignsPerBlock));
  return words[at(col % kSignsPerBlock / 32)] >> (col % 32) & 1 ? -1 : 1;
}

void fill_sparse(const SketchOp& op, std::vector<double>& out) {
  const SparseShape shape = sparse_shape(op);
  std::vector<std::uint32_t> entries(at(shape.nnz));
  for (Index vector = 0; vector < shape.count; ++vector) {
    draw_vectors(op, vector, 1, entries.data());
    for (const std::uint32_t entry : entries) {
      const Index position = entry >> 1;
      const Index row = shape.are_columns ? position : vector;
      const Index col = shape.are_columns ? vector : position;
      out[at(row * op.cols + col)] += entry & 1 ? -1 : 1;
    }
  }
}

void fill_srht(const SketchOp& op, std::vector<double>& out) {
  const SrhtPlan plan(op);
  std::vector<double> row(at(plan.length));
  for (Index i = 0; i < op.rows; ++i) {
    row.assign(row.size(), 0);
    row[plan.rows[at(i)]] = 1;
    fwht_rows_ref({row.data(), Dtype::Float64, {1, plan.length}});
    for (Index j = 0; j < op.cols; ++j)
      out[at(i * op.cols + j)] = plan.is_negative(j) ? -row[at(j)] : row[at(j)];
  }
}

template <class T>
void transform_ref(const TensorView& x) {
  const Index n = x.shape[1];
  for (Index row = 0; row < x.shape[0]; ++row) {
    T* values = x.as<T>() + row * x.strides[0];
    for (Index distance = 1; distance < n; distance *= 2) {
      for (Index base = 0; base < n; base += 2 * distance) {
        for (Index i = base; i < base + distance; ++i) {
          const T a = values[i], b = values[i + distance];
          values[i] = a + b;
          values[i + distance] = a - b;
        }
      }
    }
  }
}

}  // namespace

void fwht_rows_ref(const TensorView& x) {
  x.dtype == Dtype::Float32 ? transform_ref<float>(x) : transform_ref<double>(x);
}

std::vector<double> materialize_ref(const SketchOp& op) {
  check_sketch("materialize_ref", op);
  std::vector<double> out(at(op.rows * op.cols));
  if (is_dense(op.kind)) {
    for (Index i = 0; i < op.rows; ++i) {
      for (Index j = 0; j < op.cols; ++j)
        out[at(i * op.cols + j)] =
            op.kind == SketchKind::Gaussian ? gaussian_ref(op, i, j) : sign_ref(op, i, j);
    }
  } else if (op.kind == SketchKind::Srht) {
    fill_srht(op, out);
  } else {
    fill_sparse(op, out);
  }
  for (double& value : out) value *= entry_scale(op);
  return out;
}

}  // namespace hone::kernels

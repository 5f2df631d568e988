// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/list/multi_tensor_list.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/multi_tensor/layout/view_layout.h"
#include "hone/kernels/multi_tensor/list/list_cut.h"
#include "hone/kernels/multi_tensor/schedule/element_pass.h"
#include "hone/kernels/multi_tensor/schedule/grad_norm.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {
namespace {

const TensorView& view_at(TensorList list, Index i) { return list[static_cast<std::size_t>(i)]; }

Index size_of(TensorList list) { return static_cast<Index>(list.size()); }

float* data_of(TensorList list, const Chunk& chunk) {
  return view_at(list, chunk.tensor).as<float>() + chunk.offset;
}

std::string describe(std::string_view list, Index i) { return concat(list, " of tensor ", i); }

// ---- checks

void check_tensors(std::string_view op, std::string_view name, TensorList list) {
  for (Index i = 0; i < size_of(list); ++i) {
    const TensorView& view = view_at(list, i);
    if (view.dtype != Dtype::Float32) {
      fail_unsupported(op, concat("f32 for ", describe(name, i)), name_of(view.dtype));
    }
    const std::span<const Index> sizes = view.shape.dims();
    HONE_CHECK(std::ranges::all_of(sizes, [](Index size) { return size >= 0; }), op,
               concat("sizes of at least 0 for ", describe(name, i)), to_text(view.shape));
    HONE_CHECK(view.data != nullptr || view.elements() == 0, op,
               concat("memory for ", describe(name, i)), "none");
    HONE_CHECK(is_dense(view) || view.elements() == 0, op,
               concat(describe(name, i), " as one dense block"),
               concat("strides ", to_text(view.strides), " on shape ", to_text(view.shape)));
  }
}

// `list` against `model`, which has been checked.
void check_like(std::string_view op, TensorList model, std::string_view name, TensorList list) {
  HONE_CHECK(list.size() == model.size(), op, concat(model.size(), " tensors in list ", name),
             list.size());
  for (Index i = 0; i < size_of(list); ++i) {
    const TensorView &view = view_at(list, i), &like = view_at(model, i);
    HONE_CHECK(view.shape == like.shape, op,
               concat(describe(name, i), " of shape ", to_text(like.shape)), to_text(view.shape));
    HONE_CHECK(same_strides(view, like) || view.elements() == 0, op,
               concat(describe(name, i), " with strides ", to_text(like.strides)),
               to_text(view.strides));
  }
  check_tensors(op, name, list);
}

// Memory that a call writes, and that only its tensor may read.
class WrittenMemory {
 public:
  // Error{InvalidArgument} when two tensors share memory.
  WrittenMemory(std::string_view op, std::string_view name, TensorList list)
      : op_(op), name_(name) {
    ranges_.reserve(list.size());
    for (Index i = 0; i < size_of(list); ++i) {
      if (view_at(list, i).elements() == 0) continue;
      const auto [begin, end] = byte_range(view_at(list, i));
      ranges_.push_back({begin, end, i});
    }
    const auto before = [](const Range& a, const Range& b) { return a.begin < b.begin; };
    if (!std::is_sorted(ranges_.begin(), ranges_.end(), before)) {
      std::sort(ranges_.begin(), ranges_.end(), before);
    }
    for (std::size_t r = 1; r < ranges_.size(); ++r) {
      if (ranges_[r].begin < ranges_[r - 1].end) fail_shared(name_, ranges_[r], ranges_[r - 1]);
    }
  }

  // Tensor i of `list` may be what is written as tensor i; otherwise it must share nothing.
  void check_read(TensorList written, std::string_view name, TensorList list) const {
    for (Index i = 0; i < size_of(list); ++i) {
      const TensorView& view = view_at(list, i);
      if (view.data == view_at(written, i).data || view.elements() == 0) continue;
      const auto [begin, end] = byte_range(view);
      const auto behind =
          std::lower_bound(ranges_.begin(), ranges_.end(), end,
                           [](const Range& range, std::uintptr_t at) { return range.begin < at; });
      if (behind == ranges_.begin() || std::prev(behind)->end <= begin) continue;
      fail_shared(name, {begin, end, i}, *std::prev(behind));
    }
  }

 private:
  struct Range {
    std::uintptr_t begin = 0, end = 0;
    Index tensor = 0;
  };

  [[noreturn]] void fail_shared(std::string_view name, const Range& range,
                                const Range& other) const {
    fail_argument(op_, concat(describe(name, range.tensor), " in memory of its own"),
                  concat("memory shared with ", describe(name_, other.tensor)));
  }

  std::string_view op_, name_;
  std::vector<Range> ranges_;  // disjoint, in ascending order
};

void check_written(std::string_view op, TensorList y) {
  check_tensors(op, "y", y);
  WrittenMemory(op, "y", y);
}

void check_number(std::string_view op, std::string_view name, double value) {
  HONE_CHECK(!(std::abs(value) > std::numeric_limits<float>::max()) || std::isinf(value), op,
             concat(name, " in the range of f32"), value);
}

void check_factor(std::string_view op, std::string_view name, const ListFactor& factor,
                  TensorList list) {
  HONE_CHECK(factor.is_one() || factor.of_tensors().size() == list.size(), op,
             concat(list.size(), " numbers in ", name), factor.of_tensors().size());
  if (factor.is_one()) check_number(op, name, factor.at(0));
  for (const double value : factor.of_tensors()) check_number(op, name, value);
}

// ---- norms

double exponent_of(NormKind kind) {
  if (kind == NormKind::Max) return std::numeric_limits<double>::infinity();
  return kind == NormKind::L1 ? 1 : 2;
}

double norm_of(std::string_view op, TensorList x, NormKind kind, std::span<double> of_tensors,
               Executor& executor) {
  HONE_CHECK(of_tensors.empty() || of_tensors.size() == x.size(), op,
             concat(x.size(), " places for norms"), of_tensors.size());
  const ListCut cut(x);
  const double p = exponent_of(kind);
  const MeasureNorm measure = choose_norm(p);
  std::vector<NormPart> parts(static_cast<std::size_t>(cut.chunks()));
  cut.sweep(executor, [&](const Chunk& chunk, Index number) {
    parts[static_cast<std::size_t>(number)] = measure(data_of(x, chunk), chunk.length, p);
  });
  for (std::size_t i = 0; i < of_tensors.size(); ++i) {
    const auto tensor = static_cast<Index>(i);
    const Index begin = cut.first_chunk(tensor), end = cut.first_chunk(tensor + 1);
    of_tensors[i] = combine_norms(std::span(parts).subspan(static_cast<std::size_t>(begin),
                                                           static_cast<std::size_t>(end - begin)),
                                  p);
  }
  return combine_norms(parts, p);
}

void scale(TensorList y, const ListFactor& factor, Executor& executor) {
  const ElementPass pass = choose_element_pass();
  ListCut(y).sweep(executor, [&](const Chunk& chunk, Index) {
    float* out = data_of(y, chunk);
    pass.scale({.out = out, .x = out, .length = chunk.length},
               static_cast<float>(factor.at(chunk.tensor)));
  });
}

// args.z is written.
void run_axpby(std::string_view op, const ListAxpby& args, Executor& executor) {
  check_factor(op, op == "list_add" ? "alpha" : "a", args.a, args.y);
  check_factor(op, "b", args.b, args.y);
  const bool in_place = args.z.data() == args.y.data();
  const std::string_view written_name = in_place ? "y" : "z";
  check_tensors(op, "y", args.y);
  check_like(op, args.y, "x", args.x);
  check_like(op, args.y, written_name, args.z);
  const WrittenMemory written(op, written_name, args.z);
  written.check_read(args.z, "x", args.x);
  written.check_read(args.z, "y", args.y);
  const ElementPass pass = choose_element_pass();
  ListCut(args.z).sweep(executor, [&](const Chunk& chunk, Index) {
    pass.axpby({.out = data_of(args.z, chunk),
                .x = data_of(args.x, chunk),
                .y = data_of(args.y, chunk),
                .length = chunk.length},
               static_cast<float>(args.a.at(chunk.tensor)),
               static_cast<float>(args.b.at(chunk.tensor)));
  });
}

}  // namespace

void list_add(TensorList y, const ListFactor& alpha, TensorList x, Executor& executor) {
  HONE_TRACE_ZONE("list_add", {"tensors", y.size()});
  run_axpby("list_add", {.a = alpha, .x = x, .y = y, .z = y}, executor);
}

void list_axpby(const ListAxpby& args, Executor& executor) {
  HONE_TRACE_ZONE("list_axpby", {"tensors", args.y.size()});
  ListAxpby given = args;
  if (args.z.empty()) given.z = args.y;
  run_axpby("list_axpby", given, executor);
}

void list_mul(TensorList y, const ListFactor& factor, Executor& executor) {
  HONE_TRACE_ZONE("list_mul", {"tensors", y.size()});
  check_factor("list_mul", "factor", factor, y);
  check_written("list_mul", y);
  scale(y, factor, executor);
}

void list_mul(TensorList y, TensorList x, Executor& executor) {
  constexpr std::string_view kOp = "list_mul";
  HONE_TRACE_ZONE("list_mul", {"tensors", y.size()});
  check_tensors(kOp, "y", y);
  check_like(kOp, y, "x", x);
  WrittenMemory(kOp, "y", y).check_read(y, "x", x);
  const ElementPass pass = choose_element_pass();
  ListCut(y).sweep(executor, [&](const Chunk& chunk, Index) {
    float* out = data_of(y, chunk);
    pass.multiply({.out = out, .x = data_of(x, chunk), .y = out, .length = chunk.length});
  });
}

void list_clamp(TensorList y, double lowest, double highest, Executor& executor) {
  constexpr std::string_view kOp = "list_clamp";
  HONE_TRACE_ZONE("list_clamp", {"tensors", y.size()});
  HONE_CHECK(lowest <= highest, kOp, concat("highest of at least lowest = ", lowest), highest);
  check_number(kOp, "lowest", lowest);
  check_number(kOp, "highest", highest);
  check_written(kOp, y);
  const ElementPass pass = choose_element_pass();
  ListCut(y).sweep(executor, [&](const Chunk& chunk, Index) {
    float* out = data_of(y, chunk);
    pass.clamp({.out = out, .x = out, .length = chunk.length}, static_cast<float>(lowest),
               static_cast<float>(highest));
  });
}

void list_zero(TensorList y, Executor& executor) {
  HONE_TRACE_ZONE("list_zero", {"tensors", y.size()});
  check_written("list_zero", y);
  ListCut(y).sweep(executor, [&](const Chunk& chunk, Index) {
    std::fill_n(data_of(y, chunk), chunk.length, 0.0f);
  });
}

double list_norm(TensorList x, Executor& executor, NormKind kind, std::span<double> of_tensors) {
  HONE_TRACE_ZONE("list_norm", {"tensors", x.size()});
  check_tensors("list_norm", "x", x);
  return norm_of("list_norm", x, kind, of_tensors, executor);
}

double list_clip_norm(TensorList y, double max_norm, Executor& executor, NormKind kind) {
  constexpr std::string_view kOp = "list_clip_norm";
  HONE_TRACE_ZONE("list_clip_norm", {"tensors", y.size()});
  HONE_CHECK(max_norm >= 0, kOp, "max_norm of at least 0", max_norm);
  check_written(kOp, y);
  const double norm = norm_of(kOp, y, kind, {}, executor);
  const double coefficient = clip_coefficient(max_norm, norm);
  if (coefficient != 1) scale(y, coefficient, executor);
  return norm;
}

}  // namespace hone::kernels

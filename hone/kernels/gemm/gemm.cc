// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/gemm/gemm.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/gemm/epilogue_tile.h"
#include "hone/kernels/gemm/tile.h"
#include "hone/kernels/gemm/variant.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "gemm";

// The limits on a chunk: 64 weight rows, and as many weight bytes as one core streams in about 50
// µs, so that a preempted worker delays little.
constexpr Index kMaxPanels = 4;
constexpr Index kMaxChunkBytes = Index{512} << 10;
// Up to this many rows of x are read in one pass over the columns.
constexpr Index kOnePassRows = 16;
// For more rows: rows of x per work item (16 steps of 12), and columns per pass over them. With
// Int8, one pass reads 192·1024·1.25 bytes of x and 64·1024 of weights, which fit into a 1 MiB L2.
constexpr Index kRowsPerItem = 192;
constexpr Index kDepthPerPass = 1024, kFloatDepthPerPass = 512;

// One output of the call, divided into chunks of whole panels.
struct Part {
  GemmOutput output;
  GemmVariant variant;
  Index panels_per_chunk = 0, first_chunk = 0, chunks = 0;
};

struct Plan {
  const PackedRows* x = nullptr;
  std::vector<Part> parts;
  Index chunks = 0;

  const Part& part_of(Index chunk) const {
    auto part = parts.begin();
    while (chunk >= part->first_chunk + part->chunks) ++part;
    return *part;
  }
};

void check_output(const PackedRows& x, const GemmOutput& output) {
  HONE_REQUIRE(
      output.weight != nullptr && (output.y != nullptr || output.weight->rows() * x.rows() == 0),
      kOp, "The weight or the output is null.");
  const PackedMatrix& weight = *output.weight;
  const Epilogue& epilogue = output.epilogue;
  HONE_CHECK(weight.cols() == x.cols(), kOp, concat("x of ", weight.cols(), " columns"), x.cols());
  HONE_CHECK(weight.takes(x.act()), kOp, "f32 activations", concat("int8 for ", weight.variant()));
  HONE_CHECK(x.rows() <= 1 || output.y_stride >= weight.rows(), kOp,
             concat("an output stride of at least ", weight.rows()), output.y_stride);
  HONE_REQUIRE(is_gated(epilogue.activation) == weight.is_gate_up(), kOp,
               "A gated activation and a gate-up weight require each other.");
  HONE_CHECK(
      epilogue.residual == nullptr || x.rows() <= 1 || epilogue.residual_stride >= weight.rows(),
      kOp, concat("a residual stride of at least ", weight.rows()), epilogue.residual_stride);
}

// `all_panels` counts the panels of all outputs of the call. Their chunks are then of about equal
// size, and so are the shares of the workers: chunks taken from another's share are not prefetched.
Index panels_per_chunk(const PackedMatrix& weight, Index all_panels, int workers) {
  const Index step = weight.is_gate_up() ? 2 : 1;
  const Index bytes = std::max<Index>(1, weight.layout().panel_bytes);
  Index panels = std::min(kMaxPanels, std::max<Index>(1, kMaxChunkBytes / bytes));
  // Several chunks per worker, so that waiting for the last one is short.
  panels = std::min(panels, all_panels / (4 * workers));
  return round_up(std::max<Index>(1, panels), step);
}

Plan make_plan(const GemmArgs& args) {
  Plan plan;
  plan.x = &args.x;
  plan.parts.reserve(args.outputs.size());
  Index all_panels = 0;
  for (const GemmOutput& output : args.outputs) {
    check_output(args.x, output);
    all_panels += output.weight->panels();
  }
  for (const GemmOutput& output : args.outputs) {
    const PackedMatrix& weight = *output.weight;
    Part part{.output = output, .variant = choose_variant(weight.layout().kind, args.x.act())};
    part.panels_per_chunk = panels_per_chunk(weight, all_panels, args.executor.workers());
    part.chunks = ceil_div(weight.panels(), part.panels_per_chunk);
    part.first_chunk = plan.chunks;
    plan.chunks += part.chunks;
    plan.parts.push_back(part);
  }
  return plan;
}

// The product of rows [first_row, first_row + rows) of x and one chunk of a part, with sums in
// `values`.
struct Work {
  const PackedRows& x;
  const Part& part;
  Index first_panel, panels;
  Index first_row, rows;
  float* values;

  Work(const Plan& plan, Index chunk, Index first_row_in, Index rows_in, float* values_in)
      : x(*plan.x),
        part(plan.part_of(chunk)),
        first_panel((chunk - part.first_chunk) * part.panels_per_chunk),
        panels(std::min(part.panels_per_chunk, part.output.weight->panels() - first_panel)),
        first_row(first_row_in),
        rows(rows_in),
        values(values_in) {}

  EpilogueTile tile() const {
    const PackedMatrix& weight = *part.output.weight;
    const Index halves = weight.is_gate_up() ? 2 : 1;
    const Index first = first_panel / halves * kPanelRows;
    return {.values = values,
            .stride = kMaxPanels * kPanelRows,
            .rows = rows,
            .panels = panels,
            .first_output = first,
            .outputs = std::min(panels / halves * kPanelRows, weight.rows() - first)};
  }

  void multiply(Index k_begin, Index k_end) const {
    const PackedMatrix& weight = *part.output.weight;
    part.variant.tile({.layout = &weight.layout(),
                       .panels = weight.panel(first_panel),
                       .panel_count = panels,
                       .x = x.data() + first_row / kRowGroup * x.group_bytes(),
                       .x_group_bytes = x.group_bytes(),
                       .single_row = x.act() == Act::Float32 && x.rows() == 1,
                       .rows = rows,
                       .k_begin = k_begin,
                       .k_end = k_end,
                       .out = values,
                       .out_stride = kMaxPanels * kPanelRows,
                       .accumulate = k_begin > 0,
                       .panel_by_panel = reads_panel_by_panel(weight.layout().kind)});
  }

  // Computes everything but the residual, which must be added exactly once.
  void compute(Index depth_per_pass) const {
    const Index depth = x.cols();
    const Index step = part.variant.in_steps ? depth_per_pass : std::max<Index>(1, depth);
    if (depth == 0) std::fill_n(values, rows * kMaxPanels * kPanelRows, 0.0f);
    for (Index k = 0; k < depth; k += step) multiply(k, std::min(depth, k + step));
    finish_tile(tile(), part.output.epilogue, part.output.weight->rows());
  }

  void store() const {
    const GemmOutput& output = part.output;
    const float* residual = output.epilogue.residual;
    if (residual != nullptr) residual += first_row * output.epilogue.residual_stride;
    store_tile(tile(), residual, output.epilogue.residual_stride,
               output.y + first_row * output.y_stride, output.y_stride);
  }
};

// Chunks of many rows are divided again, into items of kRowsPerItem rows.
PublishTicket run(Plan&& plan, const GemmArgs& args) {
  const Index rows = args.x.rows(), rows_per_item = std::min(rows, kRowsPerItem);
  const Index depth_per_pass = rows <= kOnePassRows        ? args.x.cols()
                               : args.x.act() == Act::Int8 ? kDepthPerPass
                                                           : kFloatDepthPerPass;
  PublishWork work;
  work.chunks = ceil_div(rows, rows_per_item) * plan.chunks;
  work.slot_bytes = rows_per_item * kMaxPanels * kPanelRows * static_cast<Index>(sizeof(float));
  work.wait_for_stragglers = args.wait_for_stragglers;
  // Shared, because a straggler may still use it after this call has returned.
  const auto shared = std::make_shared<const Plan>(std::move(plan));
  const auto item = [shared, rows, rows_per_item](Index index, const std::byte* slot) {
    const Index first_row = index / shared->chunks * rows_per_item;
    return Work(*shared, index % shared->chunks, first_row,
                std::min(rows_per_item, rows - first_row),
                reinterpret_cast<float*>(const_cast<std::byte*>(slot)));
  };
  work.compute = [item, depth_per_pass](Index index, std::byte* slot) {
    item(index, slot).compute(depth_per_pass);
  };
  work.commit = [item](Index index, const std::byte* slot) { item(index, slot).store(); };
  return args.executor.parallel_publish(std::move(work));
}

Index outputs_of(const GemmArgs& args) {
  Index sum = 0;
  for (const GemmOutput& output : args.outputs) sum += output.weight->rows();
  return sum;
}

Index weight_bytes_of(const GemmArgs& args) {
  Index sum = 0;
  for (const GemmOutput& output : args.outputs) sum += output.weight->bytes();
  return sum;
}

}  // namespace

PublishTicket gemm(const GemmArgs& args) {
  Plan plan = make_plan(args);
  HONE_TRACE_ZONE("gemm", {"rows", args.x.rows()}, {"outputs", outputs_of(args)},
                  {"depth", args.x.cols()}, {"weight_bytes", weight_bytes_of(args)});
  if (plan.chunks == 0 || args.x.rows() == 0) return {};
  return run(std::move(plan), args);
}

void gemm(const float* x, Index rows, Index stride, const GemmOutput& output, Executor& executor) {
  HONE_REQUIRE(output.weight != nullptr, kOp, "The weight is null.");
  const PackedMatrix& weight = *output.weight;
  PackedRows packed;
  if (weight.preferred_act() == Act::Int8) {
    quantize_rows(x, rows, weight.cols(), stride, packed, executor);
  } else {
    interleave_rows(x, rows, weight.cols(), stride, packed, executor);
  }
  gemm({.x = packed, .outputs = {&output, 1}, .executor = executor});
}

std::string gemm_kernel_name(const PackedMatrix& weight, Act act) {
  const GemmVariant variant = choose_variant(weight.layout().kind, act);
  if (variant.name != "highway") return std::string(variant.name);
  return concat("highway:", name_of(best_isa()));
}

}  // namespace hone::kernels

// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_gemm.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "hone/core/bf16.h"
#include "hone/core/check.h"
#include "hone/core/format/quant_format.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/philox.h"
#include "hone/kernels/gemm/gemm.h"

namespace hone::bench {
namespace {

using kernels::PackedMatrix;

constexpr std::string_view kOp = "bench gemm";
// Idle workers of OpenMP spin for about a millisecond and would slow down the next contestant.
constexpr std::chrono::milliseconds kRestBetweenSamples{5};

std::vector<float> random_floats(Index count, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = 2 * random.uniform() - 1;
  return values;
}

bool is_dense(const std::string& format) {
  return format == "f32" || format == "f16" || format == "bf16";
}
std::optional<GgufType> block_type_of(const std::string& format) {
  constexpr std::array<std::pair<std::string_view, GgufType>, 8> kTypes{{{"q8_0", GgufType::Q8_0},
                                                                         {"q4_0", GgufType::Q4_0},
                                                                         {"q4_1", GgufType::Q4_1},
                                                                         {"q5_0", GgufType::Q5_0},
                                                                         {"q5_1", GgufType::Q5_1},
                                                                         {"q4_k", GgufType::Q4_K},
                                                                         {"q5_k", GgufType::Q5_K},
                                                                         {"q6_k", GgufType::Q6_K}}};
  for (const auto& [name, type] : kTypes) {
    if (name == format) return type;
  }
  return std::nullopt;
}

// A matrix with its own storage. Rates do not depend on the values, so codes are random bits.
struct OwnedMatrix {
  std::vector<std::byte> bytes, scales, zeros;
  StoredMatrix stored;
};

void fill_dense(OwnedMatrix& matrix, std::span<const float> weight) {
  const Dtype dtype = matrix.stored.dtype;
  matrix.bytes.resize(weight.size() * static_cast<std::size_t>(bytes_of(dtype)));
  if (dtype == Dtype::Float32) {
    std::memcpy(matrix.bytes.data(), weight.data(), weight.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const std::uint16_t bits =
        dtype == Dtype::Float16 ? float_to_f16(weight[i]) : float_to_bf16(weight[i]);
    std::memcpy(matrix.bytes.data() + 2 * i, &bits, 2);
  }
}

// Blocks that hone only reads: random bits between f16 scales and minimums. Q6_K has its scale at
// byte 208, the others at byte 0, with the minimum, or codes, behind.
void fill_random_blocks(OwnedMatrix& matrix, std::size_t values) {
  const GgufTypeInfo& info =
      gguf_type_info(static_cast<std::uint32_t>(matrix.stored.block_type), kOp);
  matrix.bytes.resize(values / static_cast<std::size_t>(info.block) *
                      static_cast<std::size_t>(info.bytes));
  PhiloxStream random(3);
  for (std::byte& byte : matrix.bytes) byte = static_cast<std::byte>(random() & 0xff);
  const std::uint16_t half = float_to_f16(0x1p-7f);
  const std::size_t first = matrix.stored.block_type == GgufType::Q6_K ? 208 : 0;
  const std::size_t last = first == 0 ? 2 : first;
  for (std::size_t at = 0; at < matrix.bytes.size(); at += static_cast<std::size_t>(info.bytes)) {
    std::memcpy(matrix.bytes.data() + at + first, &half, 2);
    std::memcpy(matrix.bytes.data() + at + last, &half, 2);
  }
}

void fill_blocks(OwnedMatrix& matrix, std::span<const float> weight) {
  if (matrix.stored.block_type != GgufType::Q8_0 && matrix.stored.block_type != GgufType::Q4_0)
    return fill_random_blocks(matrix, weight.size());
  const bool eight = matrix.stored.block_type == GgufType::Q8_0;
  matrix.bytes.resize(weight.size() / 32 *
                      static_cast<std::size_t>(eight ? kQ8_0Bytes : kQ4_0Bytes));
  eight ? encode_q8_0(weight, matrix.bytes) : encode_q4_0(weight, matrix.bytes);
}

void fill_codes(OwnedMatrix& matrix) {
  StoredMatrix& stored = matrix.stored;
  const QuantSpec& spec = stored.quant.spec;
  const Index groups =
      spec.span == ScaleSpan::Tensor ? 1 : stored.rows * spec.groups_per_row(stored.cols);
  PhiloxStream random(3);
  matrix.bytes.resize(static_cast<std::size_t>(stored.rows * spec.code_bytes_per_row(stored.cols)));
  for (std::byte& byte : matrix.bytes) byte = static_cast<std::byte>(random() & 0xff);
  constexpr float kScale = 0x1p-7f;
  const Index scale_bytes = bytes_of(spec.scale_dtype);
  matrix.scales.resize(static_cast<std::size_t>(groups * scale_bytes));
  for (Index g = 0; g < groups; ++g) {
    std::byte* to = matrix.scales.data() + g * scale_bytes;
    const std::uint16_t half =
        spec.scale_dtype == Dtype::Float16 ? float_to_f16(kScale) : float_to_bf16(kScale);
    scale_bytes == 4 ? std::memcpy(to, &kScale, 4) : std::memcpy(to, &half, 2);
  }
  if (!spec.symmetric) {
    matrix.zeros.assign(static_cast<std::size_t>(groups),
                        static_cast<std::byte>(1 << (spec.bits - 1)));
  }
  stored.quant.codes = matrix.bytes;
  stored.quant.scales = matrix.scales;
  stored.quant.zeros = matrix.zeros;
}

OwnedMatrix make_matrix(const std::string& format, const GemmShape& shape,
                        std::span<const float> weight) {
  OwnedMatrix matrix;
  StoredMatrix& stored = matrix.stored;
  stored.rows = shape.outputs;
  stored.cols = shape.depth;
  if (is_dense(format)) {
    stored.dtype = format == "f32"   ? Dtype::Float32
                   : format == "f16" ? Dtype::Float16
                                     : Dtype::BFloat16;
    fill_dense(matrix, weight);
  } else if (const auto type = block_type_of(format)) {
    stored.layout = WeightLayout::GgufBlocks;
    stored.block_type = *type;
    fill_blocks(matrix, weight);
  } else {
    stored.layout = WeightLayout::Canonical;
    stored.quant.spec = parse_quant_spec(format);
    HONE_CHECK(stored.quant.spec.kind == CodeKind::Int, kOp, "f32 instead of float", format);
    stored.quant.rows = shape.outputs;
    stored.quant.cols = shape.depth;
    fill_codes(matrix);
  }
  stored.bytes = matrix.bytes;
  return matrix;
}

// One shape: its f32 weight, which every format is made from, and what all cases share.
struct Bench {
  const BenchGemmOptions& options;
  BenchRun& run;
  Executor& executor;
  const GemmContestants& contestants;
  kernels::MemoryProbe memory;
  double peak_gflops = 0;
  GemmShape shape = {};
  std::vector<float> weight = {};

  Index copies_of(Index bytes, bool cold) const {
    const Index wanted =
        std::max(options.cold_bytes, kernels::kBeyondCaches * cpu_info().last_cache_bytes);
    return cold ? ceil_div(wanted, std::max<Index>(1, bytes)) : 1;
  }
};

// One row count of one packed format.
struct Product {
  std::shared_ptr<const std::vector<PackedMatrix>> copies;
  std::string format;
  Index rows = 0;
  bool cold = true;
};

std::function<void()> make_own_run(const Product& product, std::shared_ptr<std::vector<float>> x,
                                   Executor& executor) {
  struct State {
    kernels::PackedRows packed;
    std::vector<float> y;
    std::size_t next = 0;
  };
  const auto state = std::make_shared<State>();
  state->y.resize(static_cast<std::size_t>(product.rows * product.copies->front().rows()));
  return [copies = product.copies, rows = product.rows, x = std::move(x), state, &executor] {
    const PackedMatrix& weight = (*copies)[state->next++ % copies->size()];
    const auto make_rows = weight.preferred_act() == kernels::Act::Int8 ? kernels::quantize_rows
                                                                        : kernels::interleave_rows;
    make_rows(x->data(), rows, weight.cols(), weight.cols(), state->packed, executor);
    const kernels::GemmOutput output{
        .weight = &weight, .y = state->y.data(), .y_stride = weight.rows()};
    kernels::gemm({.x = state->packed, .outputs = {&output, 1}, .executor = executor});
  };
}

// Rests, then runs once untimed, so that both sides start with their own workers awake and all
// others asleep.
Contestant make_contestant(const std::string& name, std::function<void()> run, bool rest) {
  Contestant contestant{.name = name, .run = std::move(run), .prepare = {}};
  if (rest) {
    contestant.prepare = [run = contestant.run] {
      std::this_thread::sleep_for(kRestBetweenSamples);
      run();
    };
  }
  return contestant;
}

void add_contestants(const Bench& bench, const Product& product, const std::vector<float>& x,
                     BenchCase& bench_case) {
  const Index f32_bytes = static_cast<Index>(bench.weight.size() * sizeof(float));
  for (const GemmContestant& contestant : bench.contestants) {
    if (!contestant.make) {
      bench_case.absent.push_back(contestant.name);
      continue;
    }
    const GemmProblem problem{.x = x,
                              .weight = bench.weight,
                              .rows = product.rows,
                              .outputs = bench.shape.outputs,
                              .depth = bench.shape.depth,
                              .copies = bench.copies_of(f32_bytes, product.cold),
                              .threads = bench.executor.workers()};
    bench_case.contestants.push_back(
        make_contestant(contestant.name, contestant.make(problem), true));
    bench_case.ours.push_back(false);
    bench_case.extra.push_back({{"threads", bench.executor.workers()}});
  }
}

void add_cases(Bench& bench, const Product& product) {
  const PackedMatrix& weight = product.copies->front();
  const auto x =
      std::make_shared<std::vector<float>>(random_floats(product.rows * bench.shape.depth, 2));
  const double rows = static_cast<double>(product.rows);
  const double outputs = static_cast<double>(bench.shape.outputs);
  const double depth = static_cast<double>(bench.shape.depth);
  const bool compare_here = product.format == "f32" && !bench.contestants.empty();
  BenchCase bench_case;
  bench_case.name = concat(bench.shape.outputs, "x", bench.shape.depth, "/", product.format, "/m",
                           product.rows, product.cold ? "/cold" : "/hot");
  bench_case.flops = 2 * rows * outputs * depth;
  bench_case.contestants = {
      make_contestant("hone", make_own_run(product, x, bench.executor), compare_here)};
  bench_case.ours = {true};
  bench_case.extra = {{{"kernel", kernels::gemm_kernel_name(weight, weight.preferred_act())},
                       {"layout", weight.variant()},
                       {"weight_bytes", weight.bytes()},
                       {"threads", bench.executor.workers()}}};
  const std::string name = bench_case.name;
  BenchCase comparison = bench_case;
  bench_case.bytes = static_cast<double>(weight.bytes()) + 4 * rows * (outputs + depth);
  if (product.cold) bench_case.memory = &bench.memory;
  bench_case.probe_around = compare_here;  // threads of contestants spin after their runs
  bench_case.roof_gflop_per_s = is_dense(product.format) ? bench.peak_gflops : 0;
  if (compare_here) add_contestants(bench, product, *x, bench_case);
  bench.run.add(bench_case);
  if (compare_here || bench.contestants.empty()) return;
  comparison.name = name + "/against_f32";
  comparison.contestants[0] = make_contestant("hone", comparison.contestants[0].run, true);
  add_contestants(bench, product, *x, comparison);
  bench.run.add(comparison);
}

void add_format(Bench& bench, const std::string& format, bool cold) {
  const OwnedMatrix matrix = make_matrix(format, bench.shape, bench.weight);
  auto copies = std::make_shared<std::vector<PackedMatrix>>();
  copies->push_back(kernels::pack(matrix.stored, bench.executor));
  const Index count = bench.copies_of(copies->front().bytes(), cold);
  while (static_cast<Index>(copies->size()) < count) {
    copies->push_back(kernels::pack(matrix.stored, bench.executor));
  }
  for (const Index rows : bench.options.rows) {
    add_cases(bench, {.copies = copies, .format = format, .rows = rows, .cold = cold});
  }
}

// Checked before anything is measured.
void check_options(const BenchGemmOptions& options) {
  for (const std::string& format : options.formats) {
    const auto type = block_type_of(format);
    if (!is_dense(format) && !type) parse_quant_spec(format);
    const Index block = type ? gguf_type_info(static_cast<std::uint32_t>(*type), format).block : 1;
    for (const GemmShape& shape : options.shapes) {
      HONE_CHECK(shape.outputs > 0 && shape.depth > 0, kOp, "a shape of at least 1x1",
                 concat(shape.outputs, "x", shape.depth));
      HONE_CHECK(shape.depth % block == 0, kOp,
                 concat("a multiple of ", block, " columns for ", format), shape.depth);
    }
  }
  for (const Index rows : options.rows) HONE_CHECK(rows > 0, kOp, "at least one row", rows);
}

}  // namespace

GemmContestants absent_gemm_contestants() { return {{.name = "torch_linear", .make = {}}}; }

BenchGemmOptions quick_bench_gemm_options() {
  BenchGemmOptions options;
  options.formats = {"f32", "q8_0", "q4_0"};
  options.rows = {1, 8, 256};
  options.shapes = {{4096, 4096}};
  options.hot = false;
  options.cold_bytes = Index{128} << 20;
  return options;
}

void bench_gemm(const BenchGemmOptions& options, BenchRun& run, Measurer& measurer,
                Executor& executor, const GemmContestants& contestants) {
  check_options(options);
  Bench bench{.options = options,
              .run = run,
              .executor = executor,
              .contestants = contestants,
              .memory = kernels::make_memory_probe(kernels::MemoryTraffic::Read, executor),
              .peak_gflops = kernels::measure_peak_gflops(executor, measurer, run.options().quick)};
  for (const GemmShape& shape : options.shapes) {
    bench.shape = shape;
    bench.weight = random_floats(shape.outputs * shape.depth, 1);
    for (const std::string& format : options.formats) {
      if (options.cold) add_format(bench, format, true);
      if (options.hot) add_format(bench, format, false);
    }
  }
}

}  // namespace hone::bench

// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/model_runner.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/infer/model/load_weights.h"
#include "hone/kernels/activation/soft_cap.h"
#include "hone/kernels/attention/rope.h"
#include "hone/kernels/norm/layer_norm.h"
#include "hone/kernels/norm/rms_norm.h"

namespace hone::infer {
namespace {

using kernels::Act;
using kernels::GemmOutput;

constexpr Index kLogitBytes = Index{16} << 20;
constexpr Index kLogitStep = 12;  // rows that the tiles of products take together

// Positions in model_io::layer_products().
constexpr Index kQkv = 0, kO = 1, kGateUp = 2, kDown = 3;

// Stragglers of attention read what the caller may change after a call: caches and tables.
struct LeaveQueries {
  ActivationBuffers<Buffer>& queries;
  ~LeaveQueries() { queries.wait_left(); }
};

// The widest layer.
Index most_of(const std::vector<Index>& of_layers, Index of_all) {
  return of_layers.empty() ? of_all : std::ranges::max(of_layers);
}

Buffer make_rows(Index rows, Index cols) {
  return Buffer(checked_mul(checked_mul(rows, cols, "workspace"), sizeof(float), "workspace"));
}

kernels::Activation activation_of(model_io::MlpKind kind) {
  switch (kind) {
    case model_io::MlpKind::SiluGate:
      return kernels::Activation::SiluGate;
    case model_io::MlpKind::GeluTanhGate:
      return kernels::Activation::GeluTanhGate;
    case model_io::MlpKind::GeluTanh:
      break;
  }
  return kernels::Activation::GeluTanh;
}

kernels::RopePairs pairs_of(const model_io::RopeSpec& rope) {
  return rope.pairing == model_io::RopePairing::HalfSplit ? kernels::RopePairs::HalfSplit
                                                          : kernels::RopePairs::Adjacent;
}

constexpr Index kAddedRows = 16;  // to the residual stream, by one worker at a time

void add_to(float* to, std::span<const float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) to[i] += values[i];
}

}  // namespace

RopeTables::RopeTables(const model_io::RopeSpec& rope, Index rows)
    : frequencies_(model_io::rope_frequencies(rope)),
      cosine_(static_cast<std::size_t>(rows) * frequencies_.inverse.size()),
      sine_(cosine_.size()) {}

void RopeTables::fill(Index first_row, const StepSequence& sequence) {
  const std::size_t pairs = frequencies_.inverse.size();
  const std::size_t at = static_cast<std::size_t>(first_row) * pairs;
  const std::size_t count = static_cast<std::size_t>(sequence.rows) * pairs;
  kernels::fill_rope_tables(frequencies_.inverse, frequencies_.attention_factor,
                            sequence.first_position, std::span(cosine_).subspan(at, count),
                            std::span(sine_).subspan(at, count));
}

ModelRunner::ModelRunner(const model_io::ModelFile& file, const RunnerOptions& options,
                         Executor& executor)
    : ModelRunner(file, options, executor, load_weights(file, options.weights, executor)) {}

ModelRunner::ModelRunner(const model_io::ModelFile& file, const RunnerOptions& options,
                         Executor& executor, ModelWeights weights)
    : arch_(file.architecture()),
      options_(options),
      executor_(executor),
      file_(file),
      weights_(std::move(weights)),
      kv_(plan_kv(arch_, options.kv)),
      packed_(executor),
      queries_(executor) {
  HONE_CHECK(options.max_rows > 0, "model runner", "max_rows of at least 1", options.max_rows);
  for (const LayerGroup& group : kv_.groups) layouts_.push_back(layout_of(group));
  sequences_.resize(kv_.groups.size());
  const Index rows = options.max_rows;
  hidden_ = make_rows(rows, arch_.hidden_size);
  normed_ = make_rows(rows, arch_.hidden_size);
  if (arch_.post_norms) branch_ = make_rows(rows, arch_.hidden_size);
  k_ = make_rows(rows, arch_.kv_heads * arch_.head_dim);
  v_ = make_rows(rows, arch_.kv_heads * arch_.head_dim);
  attended_ = make_rows(rows, most_of(arch_.layer_heads, arch_.heads) * arch_.head_dim);
  mlp_ = make_rows(rows, most_of(arch_.layer_intermediate, arch_.intermediate_size));
  Index rank = 0;
  for (const model_io::FactoredLayer& layer : arch_.factored) rank = std::max(rank, layer.rank);
  if (rank > 0) factored_ = make_rows(rows, rank);
  if (arch_.learned_positions) return;
  ropes_.emplace_back(arch_.rope, rows);
  if (arch_.window_rope) ropes_.emplace_back(*arch_.window_rope, rows);
}

std::string ModelRunner::kernel_name() const {
  const kernels::PackedMatrix& weight = weights_.layers.front().gate_up.weight;
  return concat(weight.variant(), ":", kernels::gemm_kernel_name(weight, act_of(weight)));
}

Act ModelRunner::act_of(const kernels::PackedMatrix& weight) const {
  return options_.act == Act::Int8 ? weight.preferred_act() : Act::Float32;
}

void ModelRunner::check(const StepBatch& batch) const {
  const Index rows = batch.rows();
  HONE_CHECK(rows > 0 && rows <= options_.max_rows, "forward",
             concat("1 to ", options_.max_rows, " tokens"), rows);
  Index sum = 0;
  for (const StepSequence& sequence : batch.sequences) {
    HONE_CHECK(sequence.rows > 0, "forward", "at least 1 row of a sequence", sequence.rows);
    HONE_CHECK(sequence.logits >= 0 && sequence.logits <= sequence.rows, "forward",
               concat("logits of 0 to ", sequence.rows, " rows"), sequence.logits);
    HONE_CHECK(sequence.tables.size() == kv_.groups.size(), "forward",
               concat("block tables for ", kv_.groups.size(), " groups of layers"),
               sequence.tables.size());
    sum += sequence.rows;
  }
  HONE_CHECK(sum == rows, "forward", concat("sequences of ", rows, " rows"), sum);
  for (const text::TokenId id : batch.tokens) {
    HONE_CHECK(id >= 0 && id < arch_.vocab_size, "forward",
               concat("a token id below ", arch_.vocab_size), id);
  }
}

bool ModelRunner::forward(const StepBatch& batch, const std::function<bool()>& go_on) {
  HONE_TRACE_ZONE("forward", {"rows", batch.rows()}, {"sequences", batch.sequences.size()});
  check(batch);
  prepare(batch);
  embed(batch);
  const LeaveQueries leave{queries_};
  for (Index i = 0; i < arch_.layers; ++i) {
    if (go_on && !go_on()) return false;
    HONE_TRACE_ZONE("layer", {"layer", i});
    const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
    attention_block(layer, batch, i);
    mlp_block(layer, batch.rows());
  }
  check_files();
  return true;
}

// What was computed with pages that are gone must not get out.
void ModelRunner::check_files() const {
  if (file_.is_damaged()) file_.check_intact();
  if (weights_.packed != nullptr && weights_.packed->is_damaged()) weights_.packed->check_intact();
}

void ModelRunner::read_embedding(const StepBatch& batch, float* hidden) {
  check(batch);
  embed(batch);
  std::copy_n(hidden_.as<float>(), batch.rows() * arch_.hidden_size, hidden);
}

void ModelRunner::run_layer(Index layer, const StepBatch& batch, float* hidden,
                            const InputListener& listener) {
  check(batch);
  prepare(batch);
  const LeaveQueries leave{queries_};
  const Index values = batch.rows() * arch_.hidden_size;
  std::copy_n(hidden, values, hidden_.as<float>());
  listener_ = listener ? &listener : nullptr;
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  attention_block(weights, batch, layer);
  mlp_block(weights, batch.rows());
  listener_ = nullptr;
  std::copy_n(hidden_.as<float>(), values, hidden);
  check_files();
}

void ModelRunner::set_layer(Index layer, LayerWeights weights) {
  packed_.wait_left();  // a straggler of the last product may read the old weights
  for (const Factor* factor :
       {&weights.qkv_factor, &weights.o_factor, &weights.gate_up_factor, &weights.down_factor}) {
    if (const Index bytes = options_.max_rows * factor->rows() * static_cast<Index>(sizeof(float));
        factored_.bytes() < bytes)
      factored_ = Buffer(bytes);
  }
  weights_.layers[static_cast<std::size_t>(layer)] = std::move(weights);
}

void ModelRunner::embed(const StepBatch& batch) {
  HONE_TRACE_ZONE("embed", {"rows", batch.rows()}, {"cols", arch_.hidden_size});
  const auto width = static_cast<std::size_t>(arch_.hidden_size);
  const std::span<float> hidden(hidden_.as<float>(), batch.tokens.size() * width);
  for (std::size_t row = 0; row < batch.tokens.size(); ++row)
    weights_.embedding.decode(batch.tokens[row], hidden.subspan(row * width, width));
  if (arch_.embedding_scale != 1) {
    const auto scale = static_cast<float>(arch_.embedding_scale);
    for (float& value : hidden) value *= scale;
  }
  Index row = 0;
  for (const StepSequence& sequence : batch.sequences) {
    if (arch_.learned_positions) add_positions(row, sequence);
    row += sequence.rows;
  }
}

// What all layers read: tables of RoPE, sequences of attention, and wanted rows.
void ModelRunner::prepare(const StepBatch& batch) {
  for (auto& of_group : sequences_) of_group.clear();
  wanted_.clear();
  Index row = 0;
  for (const StepSequence& sequence : batch.sequences) {
    for (RopeTables& rope : ropes_) rope.fill(row, sequence);
    for (std::size_t g = 0; g < sequences_.size(); ++g) {
      sequences_[g].push_back({.rows = sequence.rows,
                               .first_position = sequence.first_position,
                               .blocks = sequence.tables[g]});
    }
    row += sequence.rows;
    for (Index i = sequence.logits; i > 0; --i) wanted_.push_back(row - i);
  }
}

void ModelRunner::add_positions(Index first_row, const StepSequence& sequence) {
  const auto width = static_cast<std::size_t>(arch_.hidden_size);
  std::vector<float> position(width);
  for (Index i = 0; i < sequence.rows; ++i) {
    decode_row(weights_.positions, sequence.first_position + i, position);
    add_to(hidden_.as<float>() + (first_row + i) * arch_.hidden_size, position);
  }
}

// Order: norm; q, k, v; norms of q and k; RoPE; cache write; attention; o; norm; residual. What a
// model does not have costs nothing, and without a norm of its result o adds the residual itself.
void ModelRunner::attention_block(const LayerWeights& layer, const StepBatch& batch, Index index) {
  const Index rows = batch.rows();
  const Index q_width = layer.q.weight.rows();  // a changed layer may be narrower than the file's
  const Index kv_width = arch_.kv_heads * arch_.head_dim;
  float* q = next_queries(rows);
  const GemmOutput inputs[] = {
      {&layer.q.weight, q, q_width, {.bias = layer.q.bias_or_null()}},
      {&layer.k.weight, k_.as<float>(), kv_width, {.bias = layer.k.bias_or_null()}},
      {&layer.v.weight, v_.as<float>(), kv_width, {.bias = layer.v.bias_or_null()}}};
  project(kQkv, block_input(layer.attention_norm, rows), rows, layer.qkv_factor, inputs);
  rotate_and_store(layer, q, rows, index);
  const auto [group, kv_layer] = kv_.places[static_cast<std::size_t>(index)];
  queries_.set_reader(
      kernels::attention({.q = q,
                          .q_stride = q_width,
                          .out = attended_.as<float>(),
                          .out_stride = q_width,
                          .heads = q_width / arch_.head_dim,
                          .scale = static_cast<float>(arch_.score_scale(index)),
                          .soft_cap = static_cast<float>(arch_.attention_soft_cap),
                          .window = kv_.groups[static_cast<std::size_t>(group)].window,
                          .layout = kv_layout(group),
                          .layer = kv_layer,
                          .sequences = sequences_[static_cast<std::size_t>(group)],
                          .wait_for_stragglers = false},
                         executor_));
  add_product(kO, attended_.as<float>(), rows, layer.o_factor, layer.o, layer.attention_post_norm);
}

// Order: norm; gate and up (or up alone) with the activation; down; norm; residual.
void ModelRunner::mlp_block(const LayerWeights& layer, Index rows) {
  const Factor& first = layer.down_factor;
  const Index width = first.rows() > 0 ? first.cols() : layer.down.weight.cols();
  const GemmOutput inner[] = {
      {&layer.gate_up.weight,
       mlp_.as<float>(),
       width,
       {.bias = layer.gate_up.bias_or_null(), .activation = activation_of(arch_.mlp)}}};
  project(kGateUp, block_input(layer.mlp_norm, rows), rows, layer.gate_up_factor, inner);
  add_product(kDown, mlp_.as<float>(), rows, layer.down_factor, layer.down, layer.mlp_post_norm);
}

// What a block reads: the residual stream, normalized if the model does so before its blocks.
const float* ModelRunner::block_input(const Norm& norm, Index rows) {
  if (norm.is_empty()) return hidden_.as<float>();
  normalize(hidden_.as<float>(), norm, rows, normed_.as<float>());
  return normed_.as<float>();
}

// The outputs' products of x or, if they are factored, of A x.
void ModelRunner::project(Index product, const float* x, Index rows, const Factor& factor,
                          std::span<const GemmOutput> outputs) {
  const Index cols = factor.rows() == 0 ? outputs.front().weight->cols() : factor.cols();
  if (listener_ != nullptr) (*listener_)(product, x, rows, cols);
  if (factor.rows() == 0) return multiply(x, rows, cols, outputs);
  const GemmOutput first[] = {{&factor, factored_.as<float>(), factor.rows(), {}}};
  multiply(x, rows, cols, first);
  multiply(factored_.as<float>(), rows, factor.rows(), outputs);
}

// hidden += norm(x Wᵀ + bias), where an empty norm is the identity.
void ModelRunner::add_product(Index product, const float* x, Index rows, const Factor& factor,
                              const Linear& linear, const Norm& norm) {
  const Index width = arch_.hidden_size;
  float* hidden = hidden_.as<float>();
  const bool direct = norm.is_empty();
  GemmOutput output{&linear.weight,
                    direct ? hidden : branch_.as<float>(),
                    width,
                    {.bias = linear.bias_or_null()}};
  if (direct) {
    output.epilogue.residual = hidden;
    output.epilogue.residual_stride = width;
  }
  project(product, x, rows, factor, {&output, 1});
  if (direct) return;
  normalize(branch_.as<float>(), norm, rows, branch_.as<float>());
  const auto add_rows = [&](Index begin, Index end, int) {
    add_to(hidden + begin * width,
           {branch_.as<float>() + begin * width, static_cast<std::size_t>((end - begin) * width)});
  };
  executor_.parallel_for(rows, kAddedRows, add_rows);
}

// Memory for the queries of a layer, which no straggler is reading.
float* ModelRunner::next_queries(Index rows) {
  Buffer& buffer = queries_.next(rows);
  const Index width = most_of(arch_.layer_heads, arch_.heads) * arch_.head_dim;
  if (buffer.bytes() < rows * width * static_cast<Index>(sizeof(float))) {
    buffer = make_rows(rows, width);
  }
  return buffer.as<float>();
}

// Applies the norms of q and k and RoPE, then writes k and v to the caches.
void ModelRunner::rotate_and_store(const LayerWeights& layer, float* q, Index rows, Index index) {
  const Index q_width = layer.q.weight.rows(), heads = q_width / arch_.head_dim;
  const Index kv_width = arch_.kv_heads * arch_.head_dim;
  // One row costs about a microsecond. Few rows run on the calling thread, because a region of
  // parallel_for waits for a preempted worker.
  constexpr Index kGrain = 16;
  executor_.parallel_for(rows, kGrain, [&](Index begin, Index end, int) {
    float* queries = q + begin * q_width;
    float* k = k_.as<float>() + begin * kv_width;
    normalize_heads(layer.q_norm, end - begin, heads, queries);
    normalize_heads(layer.k_norm, end - begin, arch_.kv_heads, k);
    rotate(index, begin, end - begin, heads, queries);
    rotate(index, begin, end - begin, arch_.kv_heads, k);
    store(begin, end, index);
  });
}

// Each head of each row, or all heads of a row together.
void ModelRunner::normalize_heads(const Norm& norm, Index rows, Index heads, float* x) const {
  if (norm.is_empty()) return;
  const Index cols = std::ssize(norm.weight);
  kernels::rms_norm({.x = x,
                     .x_stride = cols,
                     .weight = norm.weight.data(),
                     .y = x,
                     .y_stride = cols,
                     .rows = rows * heads * arch_.head_dim / cols,
                     .cols = cols,
                     .epsilon = static_cast<float>(arch_.norm_eps)});
}

// Rotates `heads` heads of rows first, first + 1, … of the batch, which are at x.
void ModelRunner::rotate(Index layer, Index first, Index rows, Index heads, float* x) const {
  if (ropes_.empty()) return;
  const model_io::RopeSpec& spec = arch_.rope_of(layer);
  const RopeTables& tables = &spec == &arch_.rope ? ropes_.front() : ropes_.back();
  const Index width = heads * arch_.head_dim;
  kernels::apply_rope({.x = x,
                       .x_stride = width,
                       .y = x,
                       .y_stride = width,
                       .rows = rows,
                       .heads = heads,
                       .head_dim = arch_.head_dim,
                       .dims = spec.rotary_dims,
                       .pairs = pairs_of(spec),
                       .positions = rows,
                       .cosine = tables.cosine_of(first),
                       .sine = tables.sine_of(first)});
}

// Writes rows [begin, end) of k and v, which may belong to several sequences, to their caches.
void ModelRunner::store(Index begin, Index end, Index layer) {
  const Index kv_width = arch_.kv_heads * arch_.head_dim;
  const auto [group, kv_layer] = kv_.places[static_cast<std::size_t>(layer)];
  Index first = 0;  // row of the sequence
  for (const auto& sequence : sequences_[static_cast<std::size_t>(group)]) {
    const Index from = std::max(begin, first), to = std::min(end, first + sequence.rows);
    if (from < to) {
      kernels::write_kv({.k = k_.as<float>() + from * kv_width,
                         .v = v_.as<float>() + from * kv_width,
                         .stride = kv_width,
                         .rows = to - from,
                         .first_position = sequence.first_position + from - first,
                         .head_end = arch_.kv_heads,
                         .cache = {kv_layout(group), kv_layer, sequence.blocks}});
    }
    first += sequence.rows;
  }
}

void ModelRunner::normalize(const float* x, const Norm& norm, Index rows, float* y) {
  const Index width = arch_.hidden_size;
  const auto epsilon = static_cast<float>(arch_.norm_eps);
  if (arch_.norm == model_io::NormKind::Layer) {
    return kernels::layer_norm({.x = x,
                                .x_stride = width,
                                .weight = norm.weight.data(),
                                .bias = norm.bias.data(),
                                .y = y,
                                .y_stride = width,
                                .rows = rows,
                                .cols = width,
                                .epsilon = epsilon},
                               executor_);
  }
  kernels::rms_norm({.x = x,
                     .x_stride = width,
                     .weight = norm.weight.data(),
                     .y = y,
                     .y_stride = width,
                     .rows = rows,
                     .cols = width,
                     .epsilon = epsilon},
                    executor_);
}

// Computes products that share x. The weights of one call may need different kinds of activations,
// so x is packed once per kind.
void ModelRunner::multiply(const float* x, Index rows, Index cols,
                           std::span<const GemmOutput> outputs) {
  for (const Act act : {Act::Int8, Act::Float32}) {
    std::array<GemmOutput, 3> chosen;
    std::size_t count = 0;
    for (const GemmOutput& output : outputs) {
      if (act_of(*output.weight) == act) chosen[count++] = output;
    }
    if (count == 0) continue;
    kernels::PackedRows& packed = packed_.next(rows);
    if (act == Act::Int8) {
      kernels::quantize_rows(x, rows, cols, cols, packed, executor_);
    } else {
      kernels::interleave_rows(x, rows, cols, cols, packed, executor_);
    }
    packed_.set_reader(kernels::gemm({.x = packed,
                                      .outputs = std::span(chosen).first(count),
                                      .executor = executor_,
                                      .wait_for_stragglers = false}));
  }
}

std::span<const Index> ModelRunner::wanted_rows(Index first, Index count) const {
  HONE_CHECK(first >= 0 && count > 0 && first + count <= std::ssize(wanted_), "logits",
             concat("rows up to ", wanted_.size()), first + count);
  return std::span(wanted_).subspan(static_cast<std::size_t>(first),
                                    static_cast<std::size_t>(count));
}

std::span<float> ModelRunner::logits(Index first, Index count) {
  const Index width = arch_.hidden_size;
  const std::span<const Index> wanted = wanted_rows(first, count);
  for (std::size_t i = 0; i < wanted.size();) {  // runs of adjacent rows
    std::size_t end = i + 1;
    while (end < wanted.size() && wanted[end] == wanted[end - 1] + 1) ++end;
    normalize(hidden_.as<float>() + wanted[i] * width, weights_.final_norm,
              static_cast<Index>(end - i), normed_.as<float>() + static_cast<Index>(i) * width);
    i = end;
  }
  return multiply_head(count);
}

void ModelRunner::copy_hidden(Index first, Index count, float* out) const {
  const Index width = arch_.hidden_size;
  for (const Index row : wanted_rows(first, count)) {
    out = std::copy_n(hidden_.as<float>() + row * width, width, out);
  }
}

std::span<float> ModelRunner::logits_of(const float* hidden, Index count) {
  HONE_CHECK(count > 0 && count <= logit_rows(), "logits", concat("1 to ", logit_rows(), " rows"),
             count);
  normalize(hidden, weights_.final_norm, count, normed_.as<float>());
  return multiply_head(count);
}

Index ModelRunner::logit_rows() const {
  const Index fitting = kLogitBytes / (arch_.vocab_size * static_cast<Index>(sizeof(float)));
  return std::min(options_.max_rows, std::max<Index>(fitting / kLogitStep, 1) * kLogitStep);
}

// The logits of the first rows of normed_.
std::span<float> ModelRunner::multiply_head(Index count) {
  const Index vocab = arch_.vocab_size;
  HONE_TRACE_ZONE("logits", {"rows", count}, {"vocab", vocab});
  const Index bytes = count * vocab * static_cast<Index>(sizeof(float));
  if (logits_.bytes() < bytes) logits_ = Buffer(bytes);
  const GemmOutput output[] = {{&weights_.head.weight, logits_.as<float>(), vocab, {}}};
  multiply(normed_.as<float>(), count, arch_.hidden_size, output);
  check_files();
  const std::span<float> logits(logits_.as<float>(), static_cast<std::size_t>(count * vocab));
  if (arch_.logit_soft_cap > 0)
    kernels::soft_cap(logits, static_cast<float>(arch_.logit_soft_cap), executor_);
  return logits;
}

}  // namespace hone::infer

// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/model_runner.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hone/core/check.h"
#include "hone/core/trace.h"
#include "hone/infer/model/load_weights.h"
#include "hone/kernels/attention/rope.h"
#include "hone/kernels/norm/rms_norm.h"

namespace hone::infer {
namespace {

using kernels::Act;
using kernels::GemmOutput;

Buffer make_rows(Index rows, Index cols) {
  return Buffer(checked_mul(checked_mul(rows, cols, "workspace"), sizeof(float), "workspace"));
}

kernels::RopePairs pairs_of(const model_io::RopeSpec& rope) {
  return rope.pairing == model_io::RopePairing::HalfSplit ? kernels::RopePairs::HalfSplit
                                                          : kernels::RopePairs::Adjacent;
}

}  // namespace

ModelRunner::ModelRunner(const model_io::ModelFile& file, const RunnerOptions& options,
                         Executor& executor)
    : arch_(file.architecture()),
      options_(options),
      executor_(executor),
      file_(file),
      weights_(load_weights(file, options.weights, executor)),
      rope_(model_io::rope_frequencies(arch_.rope)),
      layout_{.dtype = options.kv,
              .layers = arch_.layers,
              .kv_heads = arch_.kv_heads,
              .head_dim = arch_.head_dim},
      ring_(executor) {
  HONE_CHECK(options.max_rows > 0, "model runner", "max_rows of at least 1", options.max_rows);
  const Index rows = options.max_rows;
  hidden_ = make_rows(rows, arch_.hidden_size);
  normed_ = make_rows(rows, arch_.hidden_size);
  q_ = make_rows(rows, arch_.heads * arch_.head_dim);
  k_ = make_rows(rows, arch_.kv_heads * arch_.head_dim);
  v_ = make_rows(rows, arch_.kv_heads * arch_.head_dim);
  mlp_ = make_rows(rows, arch_.intermediate_size);
  cosine_.resize(static_cast<std::size_t>(rows) * rope_.inverse.size());
  sine_.resize(cosine_.size());
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
    HONE_CHECK(sequence.tables.size() == 1, "forward", "one block table of a sequence",
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
  embed(batch);
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

// Also prepares what all layers read: tables of RoPE, sequences of attention, and wanted rows.
void ModelRunner::embed(const StepBatch& batch) {
  HONE_TRACE_ZONE("embed", {"rows", batch.rows()}, {"cols", arch_.hidden_size});
  const Index width = arch_.hidden_size;
  for (std::size_t row = 0; row < batch.tokens.size(); ++row) {
    weights_.embedding.decode(
        batch.tokens[row],
        {hidden_.as<float>() + static_cast<Index>(row) * width, static_cast<std::size_t>(width)});
  }
  sequences_.clear();
  wanted_.clear();
  const std::size_t pairs = rope_.inverse.size();
  Index row = 0;
  for (const StepSequence& sequence : batch.sequences) {
    const std::size_t at = static_cast<std::size_t>(row) * pairs;
    const std::size_t count = static_cast<std::size_t>(sequence.rows) * pairs;
    kernels::fill_rope_tables(rope_.inverse, rope_.attention_factor, sequence.first_position,
                              std::span(cosine_).subspan(at, count),
                              std::span(sine_).subspan(at, count));
    sequences_.push_back({.rows = sequence.rows,
                          .first_position = sequence.first_position,
                          .blocks = sequence.tables.front()});
    row += sequence.rows;
    for (Index i = sequence.logits; i > 0; --i) wanted_.push_back(row - i);
  }
}

void ModelRunner::attention_block(const LayerWeights& layer, const StepBatch& batch, Index index) {
  const Index rows = batch.rows();
  const Index q_width = arch_.heads * arch_.head_dim, kv_width = arch_.kv_heads * arch_.head_dim;
  normalize(hidden_.as<float>(), layer.attention_norm, rows, normed_.as<float>());
  const GemmOutput inputs[] = {
      {&layer.q.weight, q_.as<float>(), q_width, {.bias = layer.q.bias_or_null()}},
      {&layer.k.weight, k_.as<float>(), kv_width, {.bias = layer.k.bias_or_null()}},
      {&layer.v.weight, v_.as<float>(), kv_width, {.bias = layer.v.bias_or_null()}}};
  multiply(normed_.as<float>(), rows, arch_.hidden_size, inputs);

  rotate_and_store(rows, index);
  kernels::attention({.q = q_.as<float>(),
                      .q_stride = q_width,
                      .out = q_.as<float>(),
                      .out_stride = q_width,
                      .heads = arch_.heads,
                      .scale = 1.0f / std::sqrt(static_cast<float>(arch_.head_dim)),
                      .layout = layout_,
                      .layer = index,
                      .sequences = sequences_},
                     attention_workspace_, executor_);
  const GemmOutput output[] = {{&layer.o.weight,
                                hidden_.as<float>(),
                                arch_.hidden_size,
                                {.bias = layer.o.bias_or_null(),
                                 .residual = hidden_.as<float>(),
                                 .residual_stride = arch_.hidden_size}}};
  multiply(q_.as<float>(), rows, q_width, output);
}

void ModelRunner::mlp_block(const LayerWeights& layer, Index rows) {
  normalize(hidden_.as<float>(), layer.mlp_norm, rows, normed_.as<float>());
  const GemmOutput inner[] = {
      {&layer.gate_up.weight,
       mlp_.as<float>(),
       arch_.intermediate_size,
       {.bias = layer.gate_up.bias_or_null(), .activation = kernels::Activation::SiluGate}}};
  multiply(normed_.as<float>(), rows, arch_.hidden_size, inner);
  const GemmOutput output[] = {{&layer.down.weight,
                                hidden_.as<float>(),
                                arch_.hidden_size,
                                {.bias = layer.down.bias_or_null(),
                                 .residual = hidden_.as<float>(),
                                 .residual_stride = arch_.hidden_size}}};
  multiply(mlp_.as<float>(), rows, arch_.intermediate_size, output);
}

// Applies RoPE to q and k, then writes k and v to the caches.
void ModelRunner::rotate_and_store(Index rows, Index layer) {
  const auto pairs = static_cast<Index>(rope_.inverse.size());
  const Index q_width = arch_.heads * arch_.head_dim, kv_width = arch_.kv_heads * arch_.head_dim;
  constexpr Index kGrain = 8;  // rows; one row costs about a microsecond
  executor_.parallel_for(rows, kGrain, [&](Index begin, Index end, int) {
    float* q = q_.as<float>() + begin * q_width;
    float* k = k_.as<float>() + begin * kv_width;
    kernels::RopeArgs rope{.x = q,
                           .x_stride = q_width,
                           .y = q,
                           .y_stride = q_width,
                           .rows = end - begin,
                           .heads = arch_.heads,
                           .head_dim = arch_.head_dim,
                           .dims = arch_.rope.rotary_dims,
                           .pairs = pairs_of(arch_.rope),
                           .positions = end - begin,
                           .cosine = cosine_.data() + begin * pairs,
                           .sine = sine_.data() + begin * pairs};
    kernels::apply_rope(rope);
    rope.x = rope.y = k;
    rope.x_stride = rope.y_stride = kv_width;
    rope.heads = arch_.kv_heads;
    kernels::apply_rope(rope);
    store(begin, end, layer);
  });
}

// Writes rows [begin, end) of k and v, which may belong to several sequences, to their caches.
void ModelRunner::store(Index begin, Index end, Index layer) {
  const Index kv_width = arch_.kv_heads * arch_.head_dim;
  Index first = 0;  // row of the sequence
  for (const kernels::AttentionSequence& sequence : sequences_) {
    const Index from = std::max(begin, first), to = std::min(end, first + sequence.rows);
    if (from < to) {
      kernels::write_kv({.k = k_.as<float>() + from * kv_width,
                         .v = v_.as<float>() + from * kv_width,
                         .stride = kv_width,
                         .rows = to - from,
                         .first_position = sequence.first_position + from - first,
                         .head_end = arch_.kv_heads,
                         .cache = {layout_, layer, sequence.blocks}});
    }
    first += sequence.rows;
  }
}

void ModelRunner::normalize(const float* x, const std::vector<float>& weight, Index rows,
                            float* y) {
  const Index width = arch_.hidden_size;
  kernels::rms_norm({.x = x,
                     .x_stride = width,
                     .weight = weight.data(),
                     .y = y,
                     .y_stride = width,
                     .rows = rows,
                     .cols = width,
                     .epsilon = static_cast<float>(arch_.norm_eps)},
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
    kernels::PackedRows& packed = ring_.next();
    if (act == Act::Int8) {
      kernels::quantize_rows(x, rows, cols, cols, packed, executor_);
    } else {
      kernels::interleave_rows(x, rows, cols, cols, packed, executor_);
    }
    ring_.set_reader(kernels::gemm({.x = packed,
                                    .outputs = std::span(chosen).first(count),
                                    .executor = executor_,
                                    .wait_for_stragglers = false}));
  }
}

std::span<float> ModelRunner::logits(Index first, Index count) {
  const Index vocab = arch_.vocab_size, width = arch_.hidden_size;
  HONE_TRACE_ZONE("logits", {"rows", count}, {"vocab", vocab});
  HONE_CHECK(first >= 0 && count > 0 && first + count <= std::ssize(wanted_), "logits",
             concat("rows up to ", wanted_.size()), first + count);
  const Index bytes = count * vocab * static_cast<Index>(sizeof(float));
  if (logits_.bytes() < bytes) logits_ = Buffer(bytes);
  const std::span<const Index> wanted =
      std::span(wanted_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < wanted.size();) {  // runs of adjacent rows
    std::size_t end = i + 1;
    while (end < wanted.size() && wanted[end] == wanted[end - 1] + 1) ++end;
    normalize(hidden_.as<float>() + wanted[i] * width, weights_.final_norm,
              static_cast<Index>(end - i), normed_.as<float>() + static_cast<Index>(i) * width);
    i = end;
  }
  const GemmOutput output[] = {{&weights_.head.weight, logits_.as<float>(), vocab, {}}};
  multiply(normed_.as<float>(), count, width, output);
  check_files();
  return {logits_.as<float>(), static_cast<std::size_t>(count * vocab)};
}

}  // namespace hone::infer

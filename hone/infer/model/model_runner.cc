// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/model_runner.h"

#include <cmath>

#include "hone/core/check.h"
#include "hone/core/trace.h"
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
      weights_(pack_weights(file, executor)),
      rope_(model_io::rope_frequencies(arch_.rope)),
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

kernels::KvLayout ModelRunner::kv_layout(Dtype dtype) const {
  return {.dtype = dtype,
          .layers = arch_.layers,
          .kv_heads = arch_.kv_heads,
          .head_dim = arch_.head_dim};
}

std::string ModelRunner::kernel_name() const {
  const kernels::PackedMatrix& weight = weights_.layers.front().gate_up.weight;
  return concat(weight.variant(), ":", kernels::gemm_kernel_name(weight, act_of(weight)));
}

Act ModelRunner::act_of(const kernels::PackedMatrix& weight) const {
  return options_.act == Act::Int8 ? weight.preferred_act() : Act::Float32;
}

bool ModelRunner::forward(std::span<const text::TokenId> tokens, KvCache& cache,
                          const std::atomic<bool>* cancelled) {
  const auto rows = static_cast<Index>(tokens.size());
  HONE_TRACE_ZONE("forward", {"rows", rows}, {"position", cache.length()});
  HONE_CHECK(rows > 0 && rows <= options_.max_rows, "forward",
             concat("1 to ", options_.max_rows, " tokens"), rows);
  cache.reserve(rows);
  embed(tokens, cache.length());
  for (Index i = 0; i < arch_.layers; ++i) {
    if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) return false;
    HONE_TRACE_ZONE("layer", {"layer", i});
    const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
    attention_block(layer, cache, i, rows);
    mlp_block(layer, rows);
  }
  cache.commit(rows);
  rows_ = rows;
  return true;
}

void ModelRunner::embed(std::span<const text::TokenId> tokens, Index first_position) {
  HONE_TRACE_ZONE("embed", {"rows", tokens.size()}, {"cols", arch_.hidden_size});
  const Index width = arch_.hidden_size;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    HONE_CHECK(tokens[row] >= 0 && tokens[row] < arch_.vocab_size, "forward",
               concat("a token id below ", arch_.vocab_size), tokens[row]);
    decode_row(
        weights_.embedding, tokens[row],
        {hidden_.as<float>() + static_cast<Index>(row) * width, static_cast<std::size_t>(width)});
  }
  const std::size_t used = tokens.size() * rope_.inverse.size();
  kernels::fill_rope_tables(rope_.inverse, rope_.attention_factor, first_position,
                            std::span(cosine_).first(used), std::span(sine_).first(used));
}

void ModelRunner::attention_block(const LayerWeights& layer, KvCache& cache, Index index,
                                  Index rows) {
  const Index q_width = arch_.heads * arch_.head_dim, kv_width = arch_.kv_heads * arch_.head_dim;
  normalize(hidden_.as<float>(), layer.attention_norm, rows);
  const GemmOutput inputs[] = {
      {&layer.q.weight, q_.as<float>(), q_width, {.bias = layer.q.bias_or_null()}},
      {&layer.k.weight, k_.as<float>(), kv_width, {.bias = layer.k.bias_or_null()}},
      {&layer.v.weight, v_.as<float>(), kv_width, {.bias = layer.v.bias_or_null()}}};
  multiply(normed_.as<float>(), rows, arch_.hidden_size, inputs);

  const kernels::KvView view = cache.view(index);
  rotate_and_store(view, cache.length(), rows);
  const float scale = 1.0f / std::sqrt(static_cast<float>(arch_.head_dim));
  kernels::attention({.q = q_.as<float>(),
                      .q_stride = q_width,
                      .out = q_.as<float>(),
                      .out_stride = q_width,
                      .rows = rows,
                      .heads = arch_.heads,
                      .first_position = cache.length(),
                      .scale = scale,
                      .cache = view},
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
  normalize(hidden_.as<float>(), layer.mlp_norm, rows);
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

// Applies RoPE to q and k, then writes k and v to the cache.
void ModelRunner::rotate_and_store(const kernels::KvView& view, Index first_position, Index rows) {
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
    kernels::write_kv({.k = k,
                       .v = v_.as<float>() + begin * kv_width,
                       .stride = kv_width,
                       .rows = end - begin,
                       .first_position = first_position + begin,
                       .head_end = arch_.kv_heads,
                       .cache = view});
  });
}

void ModelRunner::normalize(const float* x, const std::vector<float>& weight, Index rows) {
  const Index width = arch_.hidden_size;
  kernels::rms_norm({.x = x,
                     .x_stride = width,
                     .weight = weight.data(),
                     .y = normed_.as<float>(),
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

std::span<float> ModelRunner::logits(Index first_row, Index rows) {
  HONE_TRACE_ZONE("logits", {"rows", rows}, {"vocab", arch_.vocab_size});
  HONE_CHECK(first_row >= 0 && rows > 0 && first_row + rows <= rows_, "logits",
             concat("rows up to ", rows_), first_row + rows);
  const Index vocab = arch_.vocab_size, bytes = rows * vocab * static_cast<Index>(sizeof(float));
  if (logits_.bytes() < bytes) logits_ = Buffer(bytes);
  normalize(hidden_.as<float>() + first_row * arch_.hidden_size, weights_.final_norm, rows);
  const GemmOutput output[] = {{&weights_.head.weight, logits_.as<float>(), vocab, {}}};
  multiply(normed_.as<float>(), rows, arch_.hidden_size, output);
  return {logits_.as<float>(), static_cast<std::size_t>(rows * vocab)};
}

}  // namespace hone::infer

// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/recurrent.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "hone/core/check.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Direction = QuantizedRecurrentImpl::Direction;

constexpr std::string_view kRecurrent = "QuantizedRecurrent";
constexpr const char* kLayerName = "layer";

// "_l1" or "_l1_reverse"
std::string suffix_of(const RecurrentOptions& options, std::size_t direction) {
  const std::size_t ways = options.bidirectional ? 2 : 1;
  return concat("_l", direction / ways, direction % ways == 1 ? "_reverse" : "");
}

const float* pointer_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

// One step of an LSTM, whose gates [batch, 4 · hidden] are input, forget, cell and output.
void step_lstm(const Tensor& gates, Tensor& h, Tensor& c) {
  const Index hidden = h.size(1);
  const auto part = [&](Index at, Index count) {
    return gates.narrow(1, at * hidden, count * hidden);
  };
  part(0, 2).sigmoid_();
  part(2, 1).tanh_();
  part(3, 1).sigmoid_();
  c = (part(1, 1) * c).addcmul_(part(0, 1), part(2, 1));
  h = at::tanh(c).mul_(part(3, 1));
}

// One step of a GRU, whose gates [batch, 3 · hidden] are reset, update and new.
void step_gru(const Tensor& from_x, const Tensor& from_h, Tensor& h) {
  const Index hidden = h.size(1);
  const auto part = [&](const Tensor& of, Index at) { return of.narrow(1, at * hidden, hidden); };
  const Tensor reset = at::sigmoid(part(from_x, 0) + part(from_h, 0));
  const Tensor update = at::sigmoid(part(from_x, 1) + part(from_h, 1));
  const Tensor fresh = at::tanh(part(from_x, 2) + reset * part(from_h, 2));
  h = at::lerp(fresh, h, update);
}

}  // namespace

std::string obstacle_to_quantizing(const torch::nn::detail::RNNOptionsBase& options) {
  return options.proj_size() > 0 ? "Projected states cannot be quantized." : "";
}

RecurrentOptions recurrent_options(const torch::nn::detail::RNNOptionsBase& options) {
  return {.is_lstm = std::holds_alternative<torch::enumtype::kLSTM>(options.mode()),
          .input = options.input_size(),
          .hidden = options.hidden_size(),
          .layers = options.num_layers(),
          .bias = options.bias(),
          .batch_first = options.batch_first(),
          .bidirectional = options.bidirectional()};
}

QuantizedRecurrentImpl::QuantizedRecurrentImpl(std::vector<Direction> directions,
                                               const RecurrentOptions& options)
    : options_(options), directions_(std::move(directions)) {
  const std::size_t ways = options.bidirectional ? 2 : 1;
  HONE_CHECK(directions_.size() == static_cast<std::size_t>(options.layers) * ways, kRecurrent,
             concat("the weights of ", options.layers, " layers"), directions_.size());
  const Index gates = (options.is_lstm ? 4 : 3) * options.hidden;
  for (std::size_t i = 0; i < directions_.size(); ++i) {
    Direction& direction = directions_[i];
    const Index inputs = i < ways ? options.input : static_cast<Index>(ways) * options.hidden;
    HONE_CHECK(
        direction.input.rows() == gates && direction.input.cols() == inputs &&
            direction.hidden.rows() == gates && direction.hidden.cols() == options.hidden,
        kRecurrent,
        concat("weights [", gates, ", ", inputs, "] and [", gates, ", ", options.hidden, "]"),
        concat("[", direction.input.rows(), ", ", direction.input.cols(), "]"));
    for (Tensor* bias : {&direction.input_bias, &direction.hidden_bias}) {
      if (bias->defined()) *bias = bias->detach().to(at::kFloat).clone();
    }
  }
  register_all();
}

void QuantizedRecurrentImpl::register_all() {
  for (std::size_t i = 0; i < directions_.size(); ++i) {
    Direction& direction = directions_[i];
    const std::string suffix = suffix_of(options_, i);
    direction.input.register_in(*this, "weight_ih" + suffix);
    direction.hidden.register_in(*this, "weight_hh" + suffix);
    if (!options_.bias) continue;
    direction.input_bias = register_buffer("bias_ih" + suffix, direction.input_bias);
    direction.hidden_bias = register_buffer("bias_hh" + suffix, direction.hidden_bias);
  }
}

void QuantizedRecurrentImpl::reset() {
  for (Direction& direction : directions_) {
    direction.input = direction.input.fresh();
    direction.hidden = direction.hidden.fresh();
    if (!options_.bias) continue;
    direction.input_bias = at::zeros_like(direction.input_bias);
    direction.hidden_bias = at::zeros_like(direction.hidden_bias);
  }
  register_all();
}

std::vector<QuantizedLayer::Weight> QuantizedRecurrentImpl::stored_weights() {
  std::vector<Weight> out;
  for (std::size_t i = 0; i < directions_.size(); ++i) {
    const std::string suffix = suffix_of(options_, i);
    out.push_back({"weight_ih" + suffix, &directions_[i].input});
    out.push_back({"weight_hh" + suffix, &directions_[i].hidden});
  }
  return out;
}

Tensor QuantizedRecurrentImpl::run_direction(const Tensor& x, Direction& direction, bool backwards,
                                             Tensors& state) {
  const Index steps = x.size(0), batch = x.size(1), gates = direction.input.rows();
  const Tensor from_x = at::empty({steps, batch, gates}, x.options());
  direction.input.multiply(x.data_ptr<float>(), steps * batch, from_x.data_ptr<float>(), gates,
                           pointer_of(direction.input_bias), nullptr, libtorch_executor());
  const Tensor out = at::empty({steps, batch, options_.hidden}, x.options());
  const Tensor sums = at::empty({batch, gates}, x.options());
  Tensor& h = state.front();
  for (Index i = 0; i < steps; ++i) {
    const Index at = backwards ? steps - 1 - i : i;
    const Tensor now = from_x[at];
    h = h.contiguous();
    // The sum with the inputs of an LSTM's gates is a part of the product.
    direction.hidden.multiply(h.data_ptr<float>(), batch, sums.data_ptr<float>(), gates,
                              pointer_of(direction.hidden_bias),
                              options_.is_lstm ? now.data_ptr<float>() : nullptr,
                              libtorch_executor());
    if (options_.is_lstm) {
      step_lstm(sums, h, state.back());
    } else {
      step_gru(now, sums, h);
    }
    out[at].copy_(h);
  }
  return out;
}

std::pair<Tensor, Tensors> QuantizedRecurrentImpl::run_packed(const Tensor& x,
                                                              const Tensors& state) {
  const at::NoGradGuard no_grad;
  const std::size_t ways = options_.bidirectional ? 2 : 1;
  Tensor y = x.detach();
  if (options_.batch_first) y = y.transpose(0, 1);
  std::vector<Tensors> last(state.size());
  for (std::size_t i = 0; i < directions_.size(); i += ways) {
    y = y.contiguous();
    Tensors outputs;
    for (std::size_t way = 0; way < ways; ++way) {
      Tensors now;
      for (const Tensor& part : state) now.push_back(part[static_cast<Index>(i + way)]);
      outputs.push_back(run_direction(y, directions_[i + way], way == 1, now));
      for (std::size_t part = 0; part < now.size(); ++part) last[part].push_back(now[part]);
    }
    y = ways == 1 ? outputs[0] : at::cat(outputs, 2);
  }
  Tensors after;
  for (const Tensors& parts : last) after.push_back(at::stack(parts));
  return {options_.batch_first ? y.transpose(0, 1) : y, after};
}

std::pair<Tensor, Tensors> QuantizedRecurrentImpl::run_decoded(const Tensor& x,
                                                               const Tensors& state) {
  Tensors weights;
  const bool keep = product() == ProductKind::Decoded || !x.device().is_cpu();
  const auto add = [&](const Tensor& tensor) { weights.push_back(tensor.to(x.scalar_type())); };
  for (Direction& direction : directions_) {
    add(direction.input.decoded(keep));
    add(direction.hidden.decoded(keep));
    if (!options_.bias) continue;
    add(direction.input_bias);
    add(direction.hidden_bias);
  }
  if (options_.is_lstm) {
    const auto [y, h, c] =
        at::lstm(x, state, weights, options_.bias, options_.layers, /*dropout=*/0,
                 /*train=*/false, options_.bidirectional, options_.batch_first);
    return {y, {h, c}};
  }
  const auto [y, h] = at::gru(x, state[0], weights, options_.bias, options_.layers, /*dropout=*/0,
                              /*train=*/false, options_.bidirectional, options_.batch_first);
  return {y, {h}};
}

std::pair<Tensor, Tensors> QuantizedRecurrentImpl::forward(const Tensor& x, const Tensors& state) {
  HONE_CHECK(x.dim() == 3 && x.size(2) == options_.input && x.numel() > 0, kRecurrent,
             concat("x [steps, batch, ", options_.input, "]"), c10::str(x.sizes()));
  const std::size_t parts = options_.is_lstm ? 2 : 1;
  HONE_CHECK(state.empty() || state.size() == parts, kRecurrent,
             concat("a state of ", parts, " tensors"), state.size());
  const std::vector<std::int64_t> sizes{std::ssize(directions_),
                                        x.size(options_.batch_first ? 0 : 1), options_.hidden};
  Tensors start;
  bool is_packed = product() == ProductKind::Packed && takes_packed_kernels(x);
  for (std::size_t i = 0; i < parts; ++i) {
    start.push_back(state.empty() ? at::zeros(sizes, x.options()) : state[i]);
    HONE_CHECK(start.back().sizes() == at::IntArrayRef(sizes), kRecurrent,
               concat("a state ", c10::str(at::IntArrayRef(sizes))),
               c10::str(start.back().sizes()));
    is_packed = is_packed && takes_packed_kernels(start.back());
  }
  return is_packed ? run_packed(x, start) : run_decoded(x, start);
}

std::shared_ptr<torch::nn::Module> RecurrentSlotImpl::held() const {
  return quantized_ ? std::static_pointer_cast<torch::nn::Module>(quantized_.ptr()) : original();
}

void RecurrentSlotImpl::set_quantized(QuantizedRecurrent layer) {
  if (layer) layer->train(is_training());
  quantized_ = std::move(layer);
  replace_module(kLayerName, held());
}

LstmSlotImpl::LstmSlotImpl(torch::nn::LSTM lstm)
    : RecurrentSlotImpl("LstmSlot"), lstm_(register_module(kLayerName, std::move(lstm))) {}

std::tuple<Tensor, LstmSlotImpl::State> LstmSlotImpl::forward(const Tensor& x,
                                                              std::optional<State> state) {
  if (!quantized_) return lstm_->forward(x, std::move(state));
  Tensors from;
  if (state) from = {std::get<0>(*state), std::get<1>(*state)};
  const auto [y, last] = quantized_->forward(x, from);
  return {y, {last[0], last[1]}};
}

GruSlotImpl::GruSlotImpl(torch::nn::GRU gru)
    : RecurrentSlotImpl("GruSlot"), gru_(register_module(kLayerName, std::move(gru))) {}

std::tuple<Tensor, Tensor> GruSlotImpl::forward(const Tensor& x, const Tensor& state) {
  if (!quantized_) return gru_->forward(x, state);
  const auto [y, last] = quantized_->forward(x, state.defined() ? Tensors{state} : Tensors{});
  return {y, last[0]};
}

namespace {

template <class Impl>
std::shared_ptr<Impl> clone_as(const std::shared_ptr<Impl>& module,
                               const std::optional<torch::Device>& device) {
  return std::dynamic_pointer_cast<Impl>(module->clone(device));
}

template <class SlotType, class Layer>
std::shared_ptr<torch::nn::Module> clone_slot(const Layer& layer,
                                              const QuantizedRecurrent& quantized,
                                              const std::optional<torch::Device>& device) {
  auto copy = std::make_shared<SlotType>(Layer(clone_as(layer.ptr(), device)));
  if (quantized) copy->set_quantized(QuantizedRecurrent(clone_as(quantized.ptr(), device)));
  return copy;
}

}  // namespace

std::shared_ptr<torch::nn::Module> LstmSlotImpl::clone(
    const std::optional<torch::Device>& device) const {
  return clone_slot<LstmSlotImpl>(lstm_, quantized_, device);
}

std::shared_ptr<torch::nn::Module> GruSlotImpl::clone(
    const std::optional<torch::Device>& device) const {
  return clone_slot<GruSlotImpl>(gru_, quantized_, device);
}

}  // namespace hone::nn

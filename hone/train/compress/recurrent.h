// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hone/train/compress/quantized_linear.h"
#include "hone/train/surgery/slot.h"

namespace hone::nn {

struct RecurrentOptions {
  bool is_lstm = true;  // if false, a GRU
  Index input = 0, hidden = 0, layers = 1;
  bool bias = true, batch_first = false, bidirectional = false;
};

// An LSTM or a GRU for inference with weights in few bits, which computes what torch::nn::LSTM and
// torch::nn::GRU do and has their names of weights ("weight_ih_l0", "weight_hh_l0_reverse"). All
// tensors are buffers. Gradients flow to the inputs.
class QuantizedRecurrentImpl final : public KeepsTypes<QuantizedRecurrentImpl>,
                                     public QuantizedLayer {
 public:
  // Weights of one direction of a layer: [gates, inputs], [gates, hidden] and their biases [gates],
  // which may be undefined.
  struct Direction {
    StoredWeight input, hidden;
    torch::Tensor input_bias, hidden_bias;
  };
  // `directions` are in the order of torch::nn::LSTM: both of a layer before the next layer.
  QuantizedRecurrentImpl(std::vector<Direction> directions, const RecurrentOptions& options);

  // x [steps, batch, input], or with batch_first [batch, steps, input]. The state has h and, of an
  // LSTM, c: [layers · directions, batch, hidden] each; empty for zeros. Returns the outputs and
  // the last state.
  std::pair<torch::Tensor, std::vector<torch::Tensor>> forward(
      const torch::Tensor& x, const std::vector<torch::Tensor>& state = {});

  const RecurrentOptions& options() const { return options_; }
  const std::vector<Direction>& directions() const { return directions_; }
  std::vector<Weight> stored_weights() override;
  void reset() override;

 private:
  void register_all();
  // The outputs [steps, batch, hidden]; `state` becomes the last one.
  torch::Tensor run_direction(const torch::Tensor& x, Direction& direction, bool backwards,
                              std::vector<torch::Tensor>& state);
  std::pair<torch::Tensor, std::vector<torch::Tensor>> run_packed(
      const torch::Tensor& x, const std::vector<torch::Tensor>& state);
  std::pair<torch::Tensor, std::vector<torch::Tensor>> run_decoded(
      const torch::Tensor& x, const std::vector<torch::Tensor>& state);

  RecurrentOptions options_;
  std::vector<Direction> directions_;
};
TORCH_MODULE(QuantizedRecurrent);

// Holds an LSTM or a GRU that quantize() can exchange. Like a Slot, it adds nothing to the paths of
// layers and the names of tensors in files.
class RecurrentSlotImpl : public torch::nn::Module, public TransparentHolder {
 public:
  std::shared_ptr<torch::nn::Module> held() const override;
  // Null while the layer is one of LibTorch.
  const QuantizedRecurrent& quantized() const { return quantized_; }
  void set_quantized(QuantizedRecurrent layer);  // null puts LibTorch's layer back
  // LibTorch's layer, which stays usable while it is replaced.
  virtual std::shared_ptr<torch::nn::Module> original() const = 0;

 protected:
  explicit RecurrentSlotImpl(std::string name) : Module(std::move(name)) {}
  QuantizedRecurrent quantized_{nullptr};
};

// torch::nn::LSTM and torch::nn::GRU that can be quantized. Declare a member as
//   nn::LstmSlot lstm = register_module("lstm", nn::LstmSlot(torch::nn::LSTM(64, 128)));
class LstmSlotImpl final : public RecurrentSlotImpl {
 public:
  using State = std::tuple<torch::Tensor, torch::Tensor>;
  explicit LstmSlotImpl(torch::nn::LSTM lstm);
  std::tuple<torch::Tensor, State> forward(const torch::Tensor& x,
                                           std::optional<State> state = std::nullopt);
  std::shared_ptr<torch::nn::Module> original() const override { return lstm_.ptr(); }
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

 private:
  torch::nn::LSTM lstm_;
};
TORCH_MODULE(LstmSlot);

class GruSlotImpl final : public RecurrentSlotImpl {
 public:
  explicit GruSlotImpl(torch::nn::GRU gru);
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x,
                                                   const torch::Tensor& state = {});
  std::shared_ptr<torch::nn::Module> original() const override { return gru_.ptr(); }
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

 private:
  torch::nn::GRU gru_;
};
TORCH_MODULE(GruSlot);

// Why an LSTM or a GRU with these options cannot be quantized; empty if it can.
std::string obstacle_to_quantizing(const torch::nn::detail::RNNOptionsBase& options);
RecurrentOptions recurrent_options(const torch::nn::detail::RNNOptionsBase& options);

}  // namespace hone::nn

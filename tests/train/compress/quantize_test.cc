// SPDX-License-Identifier: Apache-2.0
// Layers with weights in few bits: what they compute, what quantize() leaves of a model, and what
// it refuses.
#include "hone/train/compress/quantize.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/serialize.h>

#include <limits>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "hone/train/compress/quantizable.h"
#include "hone/train/compress/quantized_conv.h"
#include "hone/train/compress/recurrent.h"
#include "hone/train/fuse/fuse.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/nn/vision.h"
#include "hone/train/relative_error.h"
#include "hone/train/surgery/layer_surgery.h"
#include "tests/support/error_of.h"
#include "tests/train/scripted_measurer.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using hone::test::ScriptedMeasurer;
using test::relative;
using test::seeded_normal;
using testing::HasSubstr;
using torch::Tensor;
using torch::nn::Sequential;

Tensor normal(at::IntArrayRef sizes, std::uint64_t seed) {
  return seeded_normal(sizes.vec(), seed, at::kFloat);
}

Sequential mlp(bool bias = true) {
  torch::manual_seed(3);
  return Sequential(torch::nn::Linear(torch::nn::LinearOptions(40, 33).bias(bias)),
                    torch::nn::ReLU(), torch::nn::Linear(33, 10));
}

const QuantizedLayerRecord& record_of(const QuantizeReport& report, const std::string& path) {
  for (const QuantizedLayerRecord& record : report.layers) {
    if (record.path == path) return record;
  }
  ADD_FAILURE() << "no record of " << path;
  return report.layers.front();
}

QuantizedLayer& layer_at(torch::nn::Module& model, const std::string& path) {
  for (const QuantizedPlace& place : quantized_layers(model)) {
    if (place.path == path) return *place.layer;
  }
  throw std::runtime_error("no quantized layer " + path);
}

class Formats : public testing::TestWithParam<std::string> {};

// Without quantized activations, the only difference from the decoded weights is the order of sums.
TEST_P(Formats, linear_computes_with_the_decoded_weights) {
  for (const bool bias : {true, false}) {
    Sequential net = mlp(bias);
    const Tensor x = normal({2, 7, 40}, 1);
    const QuantizeReport report =
        quantize(net, {.spec = GetParam(), .act_int8 = false, .example = x});
    ASSERT_TRUE(report.is_applied) << report.verdict;
    EXPECT_EQ(record_of(report, "0").format,
              layer_at(*net, "0").stored_weights()[0].stored->format());
    const Tensor got = net->forward(x);
    Sequential plain = mlp(bias);
    for (const char* path : {"0", "2"}) {
      auto& linear = dynamic_cast<torch::nn::LinearImpl&>(*find_layer(*plain, path).module);
      linear.weight.set_data(layer_at(*net, path).stored_weights()[0].stored->decoded());
    }
    EXPECT_LE(relative(got, plain->forward(x)), 1e-6) << GetParam();
    EXPECT_EQ(report.bytes_after, stored_bytes(*net));
    EXPECT_NEAR(report.error, relative(got, mlp(bias)->forward(x)), 1e-9);
    // Gradients flow through the decoded weights.
    const Tensor leaf = x.clone().requires_grad_();
    net->forward(leaf).sum().backward();
    const Tensor want = x.clone().requires_grad_();
    plain->forward(want).sum().backward();
    EXPECT_LE(relative(leaf.grad(), want.grad()), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, Formats,
                         testing::Values("int8:row", "int4:g16", "int3:g16:asym", "int2:g16",
                                         "log4:g16", "int5:tensor", "f16", "bf16"));

TEST(Quantize, dynamic_int8_is_near_the_float_model) {
  Sequential net = mlp();
  const Tensor x = normal({50, 40}, 2), want = net->forward(x);
  const QuantizeReport report = quantize(net, {.example = x});
  EXPECT_LE(report.error, 0.015);
  EXPECT_GE(report.agreement, 0.9);
  EXPECT_GT(record_of(report, "0").sqnr_db, 35);
  EXPECT_LE(relative(net->forward(x), want), 0.015);
  EXPECT_EQ(quantized_layers(*net).size(), 2U);
  EXPECT_EQ(net->parameters().size(), 0U) << "optimizers have nothing to change";
}

TEST(Quantize, counts_bytes_by_the_formats_definition) {
  Sequential net = mlp();
  const QuantizeReport report = quantize(net, {.spec = "int4:g16:sym:f16"});
  // [33, 40] has three groups of 16 in a row of 8 bytes, and three scales of 2 bytes.
  EXPECT_EQ(record_of(report, "0").bytes_after, 33 * (3 * 8 + 3 * 2) + 33 * 4);
  EXPECT_EQ(record_of(report, "0").bytes_before, 33 * 40 * 4 + 33 * 4);
  EXPECT_EQ(report.bytes_before, (33 * 40 + 33 + 10 * 33 + 10) * 4);
}

TEST(Quantize, keeps_the_old_layers_and_can_be_undone) {
  Sequential net = mlp();
  const Tensor x = normal({5, 40}, 2), want = net->forward(x);
  const Snapshot before = snapshot(*net);
  quantize(net, {.spec = "int2:g16"});
  EXPECT_GT(relative(net->forward(x), want), 0.05);
  restore(before);
  EXPECT_TRUE(net->forward(x).equal(want));
}

TEST(Quantize, dequantize_gives_float_layers_of_the_decoded_weights) {
  Sequential net = mlp();
  const Tensor x = normal({5, 40}, 2);
  quantize(net, {.spec = "int4:g16", .act_int8 = false});
  const Tensor want = net->forward(x);
  EXPECT_EQ(dequantize(*net), 2);
  EXPECT_EQ(net->named_parameters().size(), 4U);
  EXPECT_LE(relative(net->forward(x), want), 1e-6);
}

TEST(Quantize, state_is_saved_and_loaded) {
  Sequential net = mlp();
  const Tensor x = normal({5, 40}, 2);
  quantize(net, {.spec = "int4:g16"});
  std::stringstream file;
  torch::save(net, file);
  torch::manual_seed(9);
  Sequential other(torch::nn::Linear(40, 33), torch::nn::ReLU(), torch::nn::Linear(33, 10));
  quantize(other, {.spec = "int4:g16"});
  other->forward(x);  // packs what the file replaces
  torch::load(other, file);
  EXPECT_TRUE(other->forward(x).equal(net->forward(x)));
}

TEST(Quantize, clones_are_equal_and_independent) {
  auto layer = std::dynamic_pointer_cast<QuantizedLinearImpl>([] {
    Sequential net(torch::nn::Linear(40, 16));
    quantize(net, {});
    return find_layer(*net, "0").module;
  }());
  const Tensor x = normal({3, 40}, 1), want = layer->forward(x);
  const auto copy = std::dynamic_pointer_cast<QuantizedLinearImpl>(layer->clone());
  EXPECT_TRUE(copy->forward(x).equal(want));
  for (Tensor buffer : layer->buffers()) buffer.zero_();
  EXPECT_TRUE(layer->forward(x).eq(0).all().item<bool>());
  EXPECT_TRUE(copy->forward(x).equal(want));
}

// The order of columns: a Slot's name for a path, and packed convolutions against LibTorch's.
struct ConvCase {
  Index in, out, kernel, stride, padding, dilation, groups;
};
class Convolutions : public testing::TestWithParam<ConvCase> {};

TEST_P(Convolutions, compute_with_the_decoded_weights) {
  const auto [in, out, kernel, stride, padding, dilation, groups] = GetParam();
  torch::manual_seed(1);
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(in, out, kernel)
                             .stride(stride)
                             .padding(padding)
                             .dilation(dilation)
                             .groups(groups));
  Sequential net(conv);
  const Tensor x = normal({3, in, 11, 9}, 4);
  const QuantizeReport report =
      quantize(net, {.spec = "int8:row", .act_int8 = false, .example = x});
  ASSERT_TRUE(report.is_applied) << report.layers[0].reason;
  auto& quantized = dynamic_cast<QuantizedConv2dImpl&>(layer_at(*net, "0"));
  const Tensor weight =
      conv_weight(quantized.stored_weights()[0].stored->decoded(), quantized.options());
  EXPECT_LE(relative(weight, conv->weight.detach()), 0.01);
  const Tensor want = at::conv2d(x, weight, conv->bias.detach(), stride, padding, dilation, groups);
  const Tensor got = net->forward(x);
  EXPECT_EQ(got.sizes(), want.sizes());
  EXPECT_LE(relative(got, want), 1e-6);
  EXPECT_LE(relative(net->forward(x.contiguous(at::MemoryFormat::ChannelsLast)), want), 1e-6);
  if (groups == 1) {
    const Tensor patches = conv_patches(x, quantized.options());
    const Tensor rows = at::mm(patches, conv_matrix(weight).t()) + conv->bias.detach();
    EXPECT_LE(relative(rows.view({3, want.size(2), want.size(3), out}).permute({0, 3, 1, 2}), want),
              1e-6);
  }
  EXPECT_EQ(dequantize(*net), 1);
  EXPECT_LE(relative(net->forward(x), want), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Geometries, Convolutions,
    testing::Values(ConvCase{3, 16, 3, 1, 1, 1, 1}, ConvCase{8, 17, 3, 2, 1, 1, 1},
                    ConvCase{8, 5, 1, 1, 0, 1, 1}, ConvCase{8, 5, 1, 2, 0, 1, 1},
                    ConvCase{4, 6, 3, 1, 2, 2, 1}, ConvCase{4, 6, 5, 3, 4, 1, 1},
                    ConvCase{8, 6, 3, 1, 1, 1, 2}));

TEST(Quantize, refuses_an_image_below_the_kernel) {
  Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 5)));
  quantize(net, {});
  EXPECT_THAT(refusal([&] { net->forward(normal({1, 2, 4, 8}, 1)); }), HasSubstr("side"));
  EXPECT_EQ(net->forward(normal({0, 2, 8, 8}, 1)).size(0), 0);
}

struct RecurrentCase {
  Index layers;
  bool bias, batch_first, bidirectional;
};
class Recurrent : public testing::TestWithParam<RecurrentCase> {};

struct RecurrentNetImpl : torch::nn::Module {
  explicit RecurrentNetImpl(const RecurrentCase& to) {
    torch::manual_seed(2);
    lstm = register_module("lstm", LstmSlot(torch::nn::LSTM(torch::nn::LSTMOptions(12, 20)
                                                                .num_layers(to.layers)
                                                                .bias(to.bias)
                                                                .batch_first(to.batch_first)
                                                                .bidirectional(to.bidirectional))));
    gru = register_module("gru", GruSlot(torch::nn::GRU(torch::nn::GRUOptions(12, 20)
                                                            .num_layers(to.layers)
                                                            .bias(to.bias)
                                                            .batch_first(to.batch_first)
                                                            .bidirectional(to.bidirectional))));
  }
  LstmSlot lstm{nullptr};
  GruSlot gru{nullptr};
};
TORCH_MODULE(RecurrentNet);

TEST_P(Recurrent, compute_with_the_decoded_weights) {
  RecurrentNet net(GetParam()), decoded(GetParam());
  const ModuleCall call(net.ptr(), [](const Tensor& x) { return x; });
  const QuantizeReport report = quantize(call, {.spec = "int8:row", .act_int8 = false});
  ASSERT_TRUE(report.is_applied) << report.verdict;
  const auto lstm = std::dynamic_pointer_cast<torch::nn::LSTMImpl>(decoded->lstm->original());
  const auto gru = std::dynamic_pointer_cast<torch::nn::GRUImpl>(decoded->gru->original());
  const auto decode_into = [](torch::nn::Module& plain, QuantizedLayer& from) {
    auto parameters = plain.named_parameters();
    for (const QuantizedLayer::Weight& weight : from.stored_weights()) {
      EXPECT_LE(relative(weight.stored->decoded(), parameters[weight.name].detach()), 0.01);
      const at::NoGradGuard no_grad;
      parameters[weight.name].copy_(weight.stored->decoded());
    }
  };
  decode_into(*lstm, layer_at(*net, "lstm"));
  decode_into(*gru, layer_at(*net, "gru"));
  const Index ways = GetParam().layers * (GetParam().bidirectional ? 2 : 1);
  const Tensor x = normal({6, 6, 12}, 1), h = normal({ways, 6, 20}, 2),
               c = normal({ways, 6, 20}, 3);
  for (const bool has_state : {true, false}) {
    const auto state = has_state ? std::optional(std::tuple(h, c)) : std::nullopt;
    const auto [want, want_state] = lstm->forward(x, state);
    const auto [got, got_state] = net->lstm->forward(x, state);
    EXPECT_LE(relative(got, want.detach()), 2e-6);
    EXPECT_LE(relative(std::get<0>(got_state), std::get<0>(want_state).detach()), 2e-6);
    EXPECT_LE(relative(std::get<1>(got_state), std::get<1>(want_state).detach()), 2e-6);
    const auto [want_gru, want_h] = gru->forward(x, has_state ? h : Tensor());
    const auto [got_gru, got_h] = net->gru->forward(x, has_state ? h : Tensor());
    EXPECT_LE(relative(got_gru, want_gru.detach()), 2e-6);
    EXPECT_LE(relative(got_h, want_h.detach()), 2e-6);
  }
  // Gradients flow through decoded weights.
  const Tensor one = x.clone().requires_grad_();
  const auto y = std::get<0>(net->lstm->forward(one));
  const auto want = std::get<0>(lstm->forward(one));
  EXPECT_LE(relative(y.detach(), want.detach()), 2e-6);
  EXPECT_TRUE(y.requires_grad());
  // Clones, and LibTorch's layers again.
  const auto copy = std::dynamic_pointer_cast<LstmSlotImpl>(net->lstm->clone());
  EXPECT_TRUE(std::get<0>(copy->forward(x)).equal(std::get<0>(net->lstm->forward(x))));
  EXPECT_EQ(dequantize(*net), 2);
  EXPECT_LE(
      relative(std::get<0>(net->lstm->forward(x)).detach(), std::get<0>(lstm->forward(x)).detach()),
      2e-6);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Recurrent,
                         testing::Values(RecurrentCase{1, true, false, false},
                                         RecurrentCase{2, true, true, true},
                                         RecurrentCase{2, false, false, true}));

TEST(Quantize, names_of_recurrent_tensors_do_not_show_the_slot) {
  RecurrentNet net(RecurrentCase{1, true, false, false});
  std::vector<std::string> names;
  for (const NamedTensor& tensor : parameters_by_path(*net)) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::Contains("lstm.weight_ih_l0"));
  quantize(ModuleCall(net.ptr(), [](const Tensor& x) { return x; }), {});
  names.clear();
  for (const NamedTensor& tensor : buffers_by_path(*net)) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::Contains("lstm.weight_ih_l0_codes"));
}

TEST(Quantize, gptq_has_a_smaller_output_error_than_rounding) {
  Sequential net = mlp();
  // Correlated inputs, which is where feedback gains.
  const Tensor mix = normal({40, 40}, 5) + 3 * at::eye(40);
  const Tensor x = at::matmul(normal({800, 40}, 6), mix),
               test = at::matmul(normal({200, 40}, 7), mix);
  const auto error_of = [&](const std::string& spec) {
    Sequential copy = mlp();
    quantize(copy, {.spec = spec, .act_int8 = false, .calibration = {x}});
    return relative(copy->forward(test), net->forward(test));
  };
  EXPECT_LT(error_of("int3:g16:gptq"), 0.8 * error_of("int3:g16"));
}

TEST(Quantize, calibrates_convolutions_with_their_patches) {
  torch::manual_seed(4);
  const auto make = [] {
    torch::manual_seed(4);
    return Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).padding(1)),
                      torch::nn::ReLU(),
                      torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 8, 3).padding(1)));
  };
  Sequential net = make();
  const auto smooth = [](std::uint64_t seed) {
    return at::avg_pool2d(normal({8, 3, 24, 24}, seed), 3, 1, 1);
  };
  const auto error_of = [&](const std::string& spec) {
    Sequential copy = make();
    const QuantizeReport report =
        quantize(copy, {.spec = spec, .act_int8 = false, .calibration = {smooth(1), smooth(2)}});
    if (spec.ends_with("gptq")) {
      EXPECT_EQ(report.layers[0].algorithm, "gptq");
    }
    return relative(copy->forward(smooth(3)), net->forward(smooth(3)));
  };
  EXPECT_LT(error_of("int3:row:gptq"), 0.8 * error_of("int3:row"));
}

TEST(Quantize, says_why_a_layer_stays) {
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      member = register_module("member", torch::nn::Linear(8, 8));
      body = register_module("body", Sequential(torch::nn::Linear(8, 8), torch::nn::Linear(8, 8)));
      lstm = register_module("lstm", torch::nn::LSTM(8, 8));
      auto& first = dynamic_cast<torch::nn::LinearImpl&>(*body->ptr(0));
      first.weight = first.register_parameter("tied", member->weight);
      first.weight = member->weight;
    }
    Tensor forward(const Tensor& x) { return body->forward(member->forward(x)); }
    torch::nn::Linear member{nullptr};
    Sequential body{nullptr};
    torch::nn::LSTM lstm{nullptr};
  };
  auto net = std::make_shared<NetImpl>();
  {
    const at::NoGradGuard no_grad;
    dynamic_cast<torch::nn::LinearImpl&>(*net->body->ptr(1))
        .weight[0][0]
        .fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const QuantizeReport report = quantize(net, {});
  EXPECT_FALSE(report.is_applied);
  EXPECT_THAT(record_of(report, "member").reason, HasSubstr("Slot"));
  EXPECT_EQ(record_of(report, "body.0").status, CompressionStatus::Skipped);
  EXPECT_THAT(record_of(report, "body.0").reason, HasSubstr("tied"));
  EXPECT_EQ(record_of(report, "body.1").status, CompressionStatus::Failed);
  EXPECT_THAT(record_of(report, "body.1").reason, HasSubstr("finite"));
  EXPECT_THAT(record_of(report, "lstm").reason, HasSubstr("LstmSlot"));
  EXPECT_EQ(report.ratio(), 1);
}

TEST(Quantize, formats_by_pattern) {
  Sequential net = mlp();
  const QuantizeReport report =
      quantize(net, {.spec = "int4:g16", .formats = {"^0$=float", "^2$=int8:row"}});
  EXPECT_EQ(record_of(report, "0").status, CompressionStatus::Skipped);
  EXPECT_EQ(record_of(report, "2").format, "int8:row");
}

TEST(Quantize, refuses_what_it_cannot_do_before_it_changes_anything) {
  Sequential net = mlp();
  const auto check = [&](const QuantizeOptions& options, const char* word) {
    EXPECT_THAT(refusal([&] { quantize(net, options); }), HasSubstr(word));
  };
  check({.spec = "int9:row"}, "int9");
  check({.spec = "int4:g16:gptq"}, "calibration");
  check({.formats = {"nothing=int8:row"}}, "nothing");
  check({.formats = {"int8:row"}}, "PATTERN");
  EXPECT_EQ(quantized_layers(*net).size(), 0U);
}

TEST(Quantize, undoes_everything_beyond_the_limit_of_error) {
  Sequential net = mlp();
  const Tensor x = normal({5, 40}, 2), want = net->forward(x);
  const QuantizeReport report =
      quantize(net, {.spec = "int2:g16", .example = x, .max_error = 0.01});
  EXPECT_FALSE(report.is_applied);
  EXPECT_THAT(report.verdict, HasSubstr("limit"));
  EXPECT_TRUE(net->forward(x).equal(want));
}

TEST(Quantize, slower_products_use_a_decoded_copy) {
  for (const bool is_slower : {true, false}) {
    ScriptedMeasurer measurer;
    measurer.seconds = {{"float", 1}, {"packed", is_slower ? 2 : 0.5}, {"quantized", 1}};
    Sequential net = mlp();
    const Tensor x = normal({5, 40}, 2);
    const QuantizeReport report = quantize(net, {.example = x}, &measurer);
    EXPECT_EQ(record_of(report, "0").is_packed, !is_slower);
    EXPECT_EQ(record_of(report, "0").packed_ms, is_slower ? 2000 : 500);
    EXPECT_EQ(layer_at(*net, "0").product(),
              is_slower ? ProductKind::Decoded : ProductKind::Packed);
    EXPECT_EQ(quantized_layers(*net).size(), 2U)
        << "the float layers that were timed are out again";
  }
}

TEST(Quantize, resnets_stay_usable) {
  ResNet net(VisionSpec{.name = "resnet20", .channels = 3, .height = 32, .image_width = 32}, 1);
  net->eval();
  const Tensor x = normal({2, 3, 32, 32}, 1), want = net->forward(x);
  const QuantizeReport report = quantize(net, {.example = x});
  EXPECT_EQ(std::ssize(report.layers), 20);
  EXPECT_EQ(quantized_layers(*net).size(), 20U);
  EXPECT_LE(relative(net->forward(x), want), 0.03);
  EXPECT_GT(report.ratio(), 3.5);
}

// Batch normalization, the shortcut and ReLU behind quantized convolutions are one operator.
TEST(QuantizedConv, folds_what_follows_it_in_a_resnet) {
  for (const bool is_decoded : {false, true}) {
    VisionNet net = make_vision_net({.name = "resnet20",
                                     .width = 16,
                                     .channels = 3,
                                     .height = 16,
                                     .image_width = 16,
                                     .classes = 5},
                                    /*seed=*/4);
    const Tensor x = at::linspace(-1, 1, 3 * 3 * 16 * 16).sin().reshape({3, 3, 16, 16});
    net->train();
    net->forward(x);  // so that the statistics are not 0 and 1
    net->eval();
    // With inputs in 8 bits, a difference in the last bit of f32 could change a code.
    ASSERT_TRUE(quantize(net, {.spec = "int8:row", .act_int8 = false}).is_applied);
    for (const QuantizedPlace& place : quantized_layers(*net.ptr())) {
      if (is_decoded) place.layer->set_product(ProductKind::Decoded);
    }
    const at::NoGradGuard no_grad;
    const Tensor want = net->forward(x);
    EXPECT_EQ(fuse_unmeasured(*net), 19);
    EXPECT_LT(relative_error(net->forward(x), want), 1e-5) << is_decoded;
    // A load writes to the buffers, which the folded forms must see.
    for (auto& buffer : net->named_buffers()) {
      if (buffer.key().ends_with("running_mean")) buffer.value().add_(0.25);
    }
    const Tensor moved = net->forward(x);
    EXPECT_GT(relative_error(moved, want), 1e-3) << is_decoded;
  }
}

}  // namespace
}  // namespace hone::nn

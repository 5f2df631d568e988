// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/quantized_conv.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hone/core/check.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kConv = "QuantizedConv2d";
constexpr Index kTileFloats = 1 << 15;  // of patches, so that they stay in the level-2 cache

// The pixels of an output image, and where their patches are in the input.
struct Patches {
  const float* x = nullptr;  // [batch, rows, columns, channels]
  Index rows = 0, columns = 0, channels = 0;
  Index out_rows = 0, out_columns = 0;
  std::array<Index, 2> kernel{};
  onednn::ConvGeometry geometry;

  Index width() const { return kernel[0] * kernel[1] * channels; }
  // Whether the patches are the pixels themselves, in their order.
  bool are_pixels() const {
    return kernel == std::array<Index, 2>{1, 1} && geometry.stride == std::array<Index, 2>{1, 1} &&
           geometry.padding == std::array<Index, 2>{0, 0};
  }

  // Copies the patches of pixels [begin, end) to out [end - begin, width()].
  void copy(Index begin, Index end, float* out) const {
    for (Index at = begin; at < end; ++at) {
      const Index column = at % out_columns, row = at / out_columns % out_rows;
      const float* image = x + at / (out_columns * out_rows) * rows * columns * channels;
      copy_one(image, row, column, out);
      out += width();
    }
  }

 private:
  void copy_one(const float* image, Index row, Index column, float* out) const {
    const auto bytes = static_cast<std::size_t>(channels) * sizeof(float);
    for (Index i = 0; i < kernel[0]; ++i) {
      const Index from_row =
          row * geometry.stride[0] - geometry.padding[0] + i * geometry.dilation[0];
      const bool row_is_inside = from_row >= 0 && from_row < rows;
      for (Index j = 0; j < kernel[1]; ++j, out += channels) {
        const Index from_column =
            column * geometry.stride[1] - geometry.padding[1] + j * geometry.dilation[1];
        if (row_is_inside && from_column >= 0 && from_column < columns) {
          std::memcpy(out, image + (from_row * columns + from_column) * channels, bytes);
        } else {
          std::memset(out, 0, bytes);
        }
      }
    }
  }
};

// The images x must be in channels-last layout and outlive the result.
Patches patches_of(const Tensor& x, const QuantizedConv2dOptions& options) {
  Patches patches{.x = x.data_ptr<float>(),
                  .rows = x.size(2),
                  .columns = x.size(3),
                  .channels = x.size(1),
                  .kernel = options.kernel,
                  .geometry = options.geometry};
  const auto size_of = [&](Index size, std::size_t axis) {
    const auto& [stride, padding, dilation, groups] = options.geometry;
    const Index reach = dilation[axis] * (options.kernel[axis] - 1) + 1;
    HONE_CHECK(size + 2 * padding[axis] >= reach, kConv,
               concat("a padded side of at least ", reach), size + 2 * padding[axis]);
    return (size + 2 * padding[axis] - reach) / stride[axis] + 1;
  };
  patches.out_rows = size_of(patches.rows, 0);
  patches.out_columns = size_of(patches.columns, 1);
  return patches;
}

Tensor channels_last(const Tensor& x) {
  return x.detach().contiguous(at::MemoryFormat::ChannelsLast);
}

}  // namespace

Tensor conv_matrix(const Tensor& weight) {
  return weight.detach().permute({0, 2, 3, 1}).reshape({weight.size(0), -1}).contiguous();
}

Tensor conv_weight(const Tensor& matrix, const QuantizedConv2dOptions& options) {
  return matrix
      .view({options.out_channels, options.kernel[0], options.kernel[1],
             options.in_channels / options.geometry.groups})
      .permute({0, 3, 1, 2});
}

Tensor conv_patches(const Tensor& x, const QuantizedConv2dOptions& options) {
  const Tensor images = channels_last(x.to(at::kFloat));
  const Patches patches = patches_of(images, options);
  const Index pixels = images.size(0) * patches.out_rows * patches.out_columns;
  const Tensor out = at::empty({pixels, patches.width()}, at::kFloat);
  patches.copy(0, pixels, out.data_ptr<float>());
  return out;
}

QuantizedConv2dImpl::QuantizedConv2dImpl(StoredWeight weight, const Tensor& bias,
                                         const QuantizedConv2dOptions& options)
    : options_(options), weight_(std::move(weight)) {
  const Index width = options.kernel[0] * options.kernel[1] * options.in_channels /
                      std::max<Index>(1, options.geometry.groups);
  HONE_CHECK(weight_.rows() == options.out_channels && weight_.cols() == width, kConv,
             concat("a matrix [", options.out_channels, ", ", width, "]"),
             concat("[", weight_.rows(), ", ", weight_.cols(), "]"));
  weight_.register_in(*this, "weight");
  if (bias.defined()) bias_ = register_buffer("bias", bias.detach().to(at::kFloat).clone());
}

void QuantizedConv2dImpl::reset() {
  weight_ = weight_.fresh();
  weight_.register_in(*this, "weight");
  if (bias_.defined()) bias_ = register_buffer("bias", at::zeros_like(bias_));
}

bool QuantizedConv2dImpl::takes_packed(const Tensor& x) const {
  HONE_CHECK(x.dim() == 4 && x.size(1) == options_.in_channels, kConv,
             concat("images [batch, ", options_.in_channels, ", height, width]"),
             c10::str(x.sizes()));
  return product() == ProductKind::Packed && options_.geometry.groups == 1 &&
         takes_packed_kernels(x);
}

// Calls `then`, which may be empty, for the rows [begin, end) of the output at y.
Tensor QuantizedConv2dImpl::multiply_packed(
    const Tensor& x, const Tensor& bias,
    const std::function<void(Index begin, Index end, float* y)>& then) {
  const at::NoGradGuard no_grad;
  const Tensor images = channels_last(x);
  const Patches patches = patches_of(images, options_);
  const Index out = options_.out_channels;
  const Tensor y = at::empty({images.size(0), out, patches.out_rows, patches.out_columns},
                             images.options(), at::MemoryFormat::ChannelsLast);
  const float* added = bias.defined() ? bias.data_ptr<float>() : nullptr;
  float* const to = y.data_ptr<float>();
  const Index pixels = images.size(0) * patches.out_rows * patches.out_columns;
  const Index tile = std::clamp<Index>(kTileFloats / patches.width() / 4 * 4, 4, 256);
  if (patches.are_pixels()) {
    weight_.multiply(patches.x, pixels, to, out, added, nullptr, libtorch_executor());
    if (!then) return y;
    libtorch_executor().parallel_for(
        pixels, tile, [&](Index begin, Index end, int) { then(begin, end, to + begin * out); });
    return y;
  }
  weight_.prepare();
  libtorch_executor().parallel_for(pixels, tile, [&](Index begin, Index end, int) {
    thread_local std::vector<float> rows;
    rows.resize(static_cast<std::size_t>(tile * patches.width()));
    patches.copy(begin, end, rows.data());
    weight_.multiply(rows.data(), end - begin, to + begin * out, out, added, nullptr,
                     serial_executor());
    if (then) then(begin, end, to + begin * out);
  });
  return y;
}

// The convolution with decoded weights, made again where something was written to.
FusedConv2dImpl& QuantizedConv2dImpl::decoded_conv(const ChannelAffine& affine,
                                                   Activation activation) {
  std::vector<Tensor> now = buffers(/*recurse=*/false);
  now.insert(now.end(), {affine.scale, affine.shift});
  const bool is_current =
      decoded_ && decoded_->options().activation == activation && decoded_sources_.are(now);
  if (is_current) return *decoded_;
  const at::NoGradGuard no_grad;
  FoldedConv folded{conv_weight(weight_.decoded(), options_).contiguous(), bias_};
  if (affine.scale.defined()) {
    folded = {folded.weight * affine.scale.view({-1, 1, 1, 1}), affine.shift};
  }
  decoded_ = std::make_shared<FusedConv2dImpl>(
      folded, FusedConv2dOptions{.geometry = options_.geometry, .activation = activation});
  decoded_sources_.set(now);
  return *decoded_;
}

Tensor QuantizedConv2dImpl::forward_scaled(const Tensor& x, const ChannelAffine& affine,
                                           Activation activation, const Tensor& residual) {
  if (!takes_packed(x)) return decoded_conv(affine, activation).forward_add(x, residual);
  const Tensor added = residual.defined() ? channels_last(residual) : residual;
  const Index channels = options_.out_channels;
  const auto* const scale = affine.scale.data_ptr<float>();
  const auto* const shift = affine.shift.data_ptr<float>();
  const float* const sum = added.defined() ? added.data_ptr<float>() : nullptr;
  const bool is_relu = activation == Activation::Relu;
  const Tensor y = multiply_packed(x, {}, [&](Index begin, Index end, float* rows) {
    for (Index row = begin; row < end; ++row, rows += channels) {
      const float* const other = sum == nullptr ? nullptr : sum + row * channels;
      for (Index c = 0; c < channels; ++c) {
        const float value = rows[c] * scale[c] + shift[c] + (other == nullptr ? 0 : other[c]);
        rows[c] = is_relu && value < 0 ? 0 : value;
      }
    }
  });
  return is_relu ? y : detail::activated(activation, y);
}

Tensor QuantizedConv2dImpl::forward(const Tensor& x) {
  if (takes_packed(x)) return multiply_packed(x, bias_, {});
  if (product() == ProductKind::Decoded && takes_packed_kernels(x)) {
    return decoded_conv({}, Activation::None).forward(x);
  }
  const auto& [stride, padding, dilation, groups] = options_.geometry;
  const bool keep = product() == ProductKind::Decoded || !x.device().is_cpu();
  const auto cast = [&](const Tensor& tensor) { return tensor.to(x.scalar_type()); };
  return at::conv2d(x, cast(conv_weight(weight_.decoded(keep), options_)),
                    bias_.defined() ? std::optional(cast(bias_)) : std::nullopt, stride, padding,
                    dilation, groups);
}

}  // namespace hone::nn

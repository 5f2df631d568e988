// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/stored_layers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/format/bitmask.h"
#include "hone/core/names.h"
#include "hone/model_io/artifact_manifest.h"
#include "hone/train/compress/quantizable.h"
#include "hone/train/compress/quantized_conv.h"
#include "hone/train/interop.h"
#include "hone/train/nn/load_weights.h"
#include "hone/train/surgery/layer_surgery.h"

namespace hone::task {
namespace {

namespace fs = std::filesystem;

using model_io::ManifestEntry;
using torch::Tensor;

constexpr std::string_view kWeight = ".weight";

std::string shape_text(at::IntArrayRef sizes, at::ScalarType type) {
  std::string out = concat(" ", c10::toString(type), " [");
  for (std::size_t i = 0; i < sizes.size(); ++i) out += concat(i == 0 ? "" : ", ", sizes[i]);
  return out + "]";
}

// Collects blobs, which are padded as in an artifact, and their manifest.
class BlobWriter {
 public:
  void add(const std::string& name, const StoredMatrix& matrix) {
    ManifestEntry entry;
    entry.name = name;
    entry.rows = matrix.rows;
    entry.cols = matrix.cols;
    entry.act_int8 = matrix.act_int8;
    if (matrix.layout == WeightLayout::Canonical) entry.spec = matrix.quant.spec;
    if (matrix.layout == WeightLayout::GgufBlocks) entry.blocks = matrix.block_type;
    if (matrix.layout == WeightLayout::Dense) entry.dense = matrix.dtype;
    std::vector<std::byte> mask, kept;
    entry.masked = masked_sizes(matrix);
    for (Index row = 0; entry.masked && row < matrix.rows; ++row) {
      append_masked_row(matrix, row, mask, kept);
    }
    const bool is_canonical = matrix.layout == WeightLayout::Canonical;
    add_blob(name + ".mask", mask);
    add_blob(name + ".codes", entry.masked   ? kept
                              : is_canonical ? matrix.quant.codes
                                             : matrix.bytes);
    add_blob(name + ".scales", matrix.quant.scales);
    add_blob(name + ".zeros", matrix.quant.zeros);
    entries_.push_back(std::move(entry));
  }

  StoredLayers take() {
    if (entries_.empty()) return {};
    return {.tensors = std::move(blobs_),
            .metadata = {{std::string(model_io::kFormatKey), std::string(model_io::kFormatVersion)},
                         {std::string(model_io::kManifestKey), model_io::write_manifest(entries_)}},
            .replaced = {}};
  }

 private:
  void add_blob(const std::string& name, std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const auto size = static_cast<Index>(bytes.size());
    const Tensor blob = at::zeros({round_up(size, model_io::kBlobAlignment)}, at::kByte);
    std::memcpy(blob.data_ptr(), bytes.data(), bytes.size());
    blobs_.push_back({name, blob});
  }

  std::vector<NamedTensor> blobs_;
  std::vector<ManifestEntry> entries_;
};

// A dense matrix in f32 as it is in memory.
StoredMatrix view_dense(const Tensor& matrix) {
  StoredMatrix out;
  out.rows = matrix.size(0);
  out.cols = matrix.size(1);
  out.bytes = tensor_bytes(matrix);
  return out;
}

// A weight of 16 bits as a tensor of the shape that the net's weight has.
Tensor narrow_weight(nn::QuantizedLayer& layer, const nn::StoredWeight& weight) {
  const StoredMatrix matrix = weight.matrix();
  const Tensor values = at::empty({matrix.rows, matrix.cols}, scalar_type_of(matrix.dtype));
  std::memcpy(values.data_ptr(), matrix.bytes.data(), matrix.bytes.size());
  const auto* const conv = dynamic_cast<const nn::QuantizedConv2dImpl*>(&layer);
  return conv == nullptr ? values : nn::conv_weight(values, conv->options()).contiguous();
}

}  // namespace

StoredLayers stored_layers_of(nn::VisionNetImpl& net) {
  BlobWriter blobs;
  std::vector<NamedTensor> narrow;
  std::set<std::string> replaced;
  for (const auto& [path, layer] : nn::quantized_layers(net)) {
    const nn::StoredWeight& weight = *layer->stored_weights().at(0).stored;
    const StoredMatrix matrix = weight.matrix();
    const std::string name = path + std::string(kWeight);
    for (const char* part : {"_codes", "_scales", "_zeros"}) replaced.insert(name + part);
    if (matrix.layout == WeightLayout::Dense) {
      narrow.push_back({name, narrow_weight(*layer, weight)});
      continue;
    }
    blobs.add(name, matrix);
  }
  for (const nn::QuantizableLayer& layer : nn::quantizable_layers(net)) {
    const std::string name = layer.path + std::string(kWeight);
    const StoredMatrix matrix = view_dense(layer.weights.at(0).matrix);
    if (!masked_sizes(matrix)) continue;
    replaced.insert(name);
    blobs.add(name, matrix);
  }
  StoredLayers out = blobs.take();
  std::ranges::move(narrow, std::back_inserter(out.tensors));
  out.replaced = std::move(replaced);
  return out;
}

bool has_stored_layers(const fs::path& file) {
  const MmapFile mapped(file);
  try {
    const SafetensorsFile content = parse_safetensors(mapped.bytes(), file.string());
    return content.find_metadata(model_io::kManifestKey) != nullptr;
  } catch (const Error&) {  // whoever reads the tensors says what is wrong
    return false;
  }
}

ClassifierFile::ClassifierFile(const fs::path& path) : mapped_(path), path_(path.string()) {
  SafetensorsFile file = parse_safetensors(mapped_.bytes(), path_);
  if (file.find_metadata(model_io::kManifestKey) != nullptr) {
    std::vector<model_io::NamedMatrix> matrices;
    model_io::extract_quantized(file, matrices, owned_, path_);
    for (const model_io::NamedMatrix& named : matrices) matrices_.emplace(named.name, named.matrix);
  }
  for (NamedTensor& tensor : copy_tensors(file)) {
    by_name_.emplace(std::move(tensor.name), std::move(tensor.value));
  }
  mapped_.check_intact();
}

Tensor ClassifierFile::take(const nn::TensorRequest& request) {
  const auto coded = matrices_.find(request.name);
  if (coded != matrices_.end()) {
    const StoredMatrix& matrix = coded->second;
    const Index numel = c10::multiply_integers(request.sizes);
    if (request.sizes.size() < 2 || matrix.rows != request.sizes[0] ||
        matrix.rows * matrix.cols != numel) {
      fail_corrupt(path_, concat(request.name, shape_text(request.sizes, request.type)),
                   concat("a matrix [", matrix.rows, ", ", matrix.cols, "]"));
    }
    if (matrix.layout != WeightLayout::Dense || matrix.dtype != Dtype::Float32) {
      return at::zeros({}, request.type).expand(request.sizes);
    }
    // [out, rows, columns, in] of a convolution, see nn::conv_matrix().
    std::vector<std::int64_t> sizes = request.sizes;
    std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
    const Tensor value = at::empty(sizes, at::kFloat);
    decode(matrix, {value.data_ptr<float>(), static_cast<std::size_t>(numel)});
    matrices_.erase(coded);
    by_name_.emplace(request.name, value.movedim(-1, 1).contiguous());
  }
  return take_plain(request);
}

Tensor ClassifierFile::take_plain(const nn::TensorRequest& request) {
  const auto found = by_name_.find(request.name);
  if (found == by_name_.end()) fail_corrupt(path_, concat("tensor ", request.name), "none");
  const Tensor tensor = found->second;
  by_name_.erase(found);
  const bool is_narrow =
      (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16) &&
      request.type == at::kFloat && request.name.ends_with(kWeight) && request.sizes.size() >= 2;
  if (tensor.sizes() != request.sizes || (tensor.scalar_type() != request.type && !is_narrow)) {
    fail_corrupt(path_, concat(request.name, shape_text(request.sizes, request.type)),
                 shape_text(tensor.sizes(), tensor.scalar_type()));
  }
  nn::check_values(tensor, request.name, path_);
  if (!is_narrow) return tensor;
  narrow_.emplace(request.name, tensor);
  return at::zeros({}, request.type).expand(request.sizes);
}

void ClassifierFile::finish(nn::VisionNetImpl& net) {
  for (const nn::QuantizableLayer& layer : nn::quantizable_layers(net)) {
    const std::string name = layer.path + std::string(kWeight);
    const auto coded = matrices_.find(name);
    const auto narrow = narrow_.find(name);
    std::optional<nn::StoredWeight> weight;
    if (coded != matrices_.end()) {
      weight.emplace(coded->second);
      matrices_.erase(coded);
    } else if (narrow != narrow_.end()) {
      const Tensor& values = narrow->second;
      const Tensor matrix =
          values.dim() == 4 ? nn::conv_matrix(values).contiguous() : values.contiguous();
      StoredMatrix dense = view_dense(matrix);
      dense.dtype = dtype_of(matrix.scalar_type(), name);
      dense.act_int8 = false;
      weight.emplace(dense);
      narrow_.erase(narrow);
    }
    if (!weight) continue;
    if (!layer.obstacle.empty()) {
      fail_corrupt(path_, concat("a layer for ", quote_name(name)), layer.obstacle);
    }
    if (!at::isfinite(weight->decoded()).all().item<bool>()) {
      fail_corrupt(path_, concat("finite values in ", name), "NaN or infinity");
    }
    std::vector<nn::StoredWeight> weights;
    weights.push_back(std::move(*weight));
    layer.apply(std::move(weights));
  }
  mapped_.check_intact();
  std::set<std::string> left;
  for (const auto& named : by_name_) left.insert(named.first);
  for (const auto& named : matrices_) left.insert(named.first);
  for (const auto& named : narrow_) left.insert(named.first);
  if (left.empty()) return;
  fail_corrupt(path_, "only tensors of the model", quote_name(*left.begin()));
}

}  // namespace hone::task

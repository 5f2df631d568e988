// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/quant_format.h"
#include "hone/core/format/safetensors.h"
#include "hone/train/nn/vision.h"
#include "hone/train/tensor_file.h"

namespace hone::task {

// The weights of a classifier that its file does not store as plain f32 tensors: quantized ones,
// and those that are stored without their zeros. Both are blobs with a manifest, as in hone's
// packed artifact (model_io/artifact_manifest.h); a matrix of a convolution is nn::conv_matrix().
// Weights in f16 and bf16 are tensors of that type.
struct StoredLayers {
  std::vector<NamedTensor> tensors;  // blobs first, which are aligned then
  SafetensorsMetadata metadata;
  std::set<std::string> replaced;  // tensors of the net that are not in the file
};
StoredLayers stored_layers_of(nn::VisionNetImpl& net);

// Whether a safetensors file has such weights, which only ClassifierFile reads.
bool has_stored_layers(const std::filesystem::path& file);

// The file of a classifier.
class ClassifierFile {
 public:
  // Throws Error{CorruptFile} for a damaged file or manifest.
  explicit ClassifierFile(const std::filesystem::path& path);

  // Returns a tensor of the net, and throws Error{CorruptFile} if it is absent or does not fit. A
  // weight that is quantized is a tensor of zeros without memory until finish() is called.
  torch::Tensor take(const nn::TensorRequest& request);
  // Replaces layers of the net by quantized ones. Throws Error{CorruptFile} for codes that do not
  // fit a layer of the net, and for tensors that are not of this net.
  void finish(nn::VisionNetImpl& net);

 private:
  torch::Tensor take_plain(const nn::TensorRequest& request);

  MmapFile mapped_;
  std::string path_;
  std::map<std::string, torch::Tensor> by_name_;
  std::map<std::string, StoredMatrix> matrices_;  // not yet taken
  std::vector<Buffer> owned_;
  std::map<std::string, torch::Tensor> narrow_;  // weights of f16 and bf16
};

}  // namespace hone::task

// SPDX-License-Identifier: Apache-2.0
#include "hone/train/vision/vision_model.h"

#include <ATen/ATen.h>

#include <utility>

#include "hone/core/file_io.h"
#include "hone/core/json_io.h"
#include "hone/core/safetensors.h"
#include "hone/train/interop.h"

namespace hone::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "hone-vision";

struct NamedTensor {
  std::string name;
  torch::Tensor value;
};

std::vector<NamedTensor> tensors_of(const nn::VisionNetImpl& net) {
  std::vector<NamedTensor> out;
  for (const auto& item : net.named_parameters()) out.push_back({item.key(), item.value()});
  for (const auto& item : net.named_buffers()) out.push_back({item.key(), item.value()});
  return out;
}

Shape shape_of(const torch::Tensor& tensor) {
  return Shape(std::span<const Index>(tensor.sizes().data(), tensor.sizes().size()));
}

}  // namespace

void write_vision_model(const fs::path& folder, const VisionModel& model) {
  const nn::VisionSpec& spec = model.net->spec();
  AtomicFolder out(folder);
  write_json_file(out.staging() / "config.json", {{"format", kFormat},
                                                  {"model", spec.name},
                                                  {"width", spec.width},
                                                  {"layers", spec.layers},
                                                  {"channels", spec.channels},
                                                  {"height", spec.height},
                                                  {"image_width", spec.image_width},
                                                  {"classes", model.classes},
                                                  {"mean", model.stats.mean},
                                                  {"std", model.stats.std}});
  std::vector<SafetensorsWriter::Entry> plan;
  const std::vector<NamedTensor> tensors = tensors_of(*model.net);
  for (const NamedTensor& named : tensors) {
    plan.push_back(
        {named.name, dtype_of(named.value.scalar_type(), named.name), shape_of(named.value)});
  }
  SafetensorsWriter writer(out.staging() / "model.safetensors", plan, {{"format", "pt"}});
  for (const NamedTensor& named : tensors) {
    const torch::Tensor dense = named.value.detach().contiguous();
    writer.write({static_cast<const std::byte*>(dense.data_ptr()), dense.nbytes()});
  }
  writer.commit();
  out.commit();
}

}  // namespace hone::trainer

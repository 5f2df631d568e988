// SPDX-License-Identifier: Apache-2.0
#include "hone/train/vision/vision_model.h"

#include "hone/core/file_io.h"
#include "hone/core/json_io.h"
#include "hone/train/tensor_file.h"

namespace hone::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "hone-vision";

std::vector<NamedTensor> tensors_of(const nn::VisionNetImpl& net) {
  std::vector<NamedTensor> out;
  for (const auto& item : net.named_parameters()) out.push_back({item.key(), item.value()});
  for (const auto& item : net.named_buffers()) out.push_back({item.key(), item.value()});
  return out;
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
  write_tensors(out.staging() / "model.safetensors", tensors_of(*model.net), {{"format", "pt"}});
  out.commit();
}

}  // namespace hone::trainer

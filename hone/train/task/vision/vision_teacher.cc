// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/vision_teacher.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/train/fuse/fuse.h"
#include "hone/train/nn/load_weights.h"

namespace hone::task {
namespace {

constexpr const char* kDistillTeacher = "distill.teacher";

std::string shape_of(const data::ImageShape& shape) {
  return concat(shape.channels, " x ", shape.height, " x ", shape.width);
}

torch::Tensor per_channel(std::vector<double> values, c10::Device device) {
  return at::tensor(values, at::kDouble).to(device, at::kFloat).view({1, -1, 1, 1});
}

}  // namespace

VisionTeacher::VisionTeacher(const std::filesystem::path& folder,
                             const std::vector<std::string>& classes, const data::ImageShape& shape,
                             const ChannelStats& stats, c10::Device device)
    : folder_(nn::weights_file_of(folder).parent_path()) {
  VisionModel model = read_vision_model(folder_);
  const nn::VisionSpec& spec = model.net->spec();
  const data::ImageShape own{spec.channels, spec.height, spec.image_width};
  HONE_CHECK(own == shape, kDistillTeacher,
             concat("a classifier of images of ", shape_of(shape), ", those of the student"),
             shape_of(own));
  std::vector<std::int64_t> order;
  for (const std::string& name : classes) {
    const auto found = std::ranges::find(model.classes, name);
    HONE_REQUIRE(found != model.classes.end(), kDistillTeacher,
                 concat("The teacher does not know the class ", name, "."));
    order.push_back(found - model.classes.begin());
  }
  std::vector<double> scale, shift;
  for (std::size_t c = 0; c < stats.mean.size(); ++c) {
    scale.push_back(stats.std[c] / model.stats.std[c]);
    shift.push_back((stats.mean[c] - model.stats.mean[c]) / model.stats.std[c]);
  }
  scale_ = per_channel(scale, device);
  shift_ = per_channel(shift, device);
  order_ = at::tensor(order, at::kLong).to(device);
  for (const torch::Tensor& parameter : model.net->parameters()) parameters_ += parameter.numel();
  net_ = model.net;
  net_->eval();
  nn::fuse_unmeasured(*net_);
  net_->to(device);
  log_info(concat(kDistillTeacher, ": ", folder_.string(), ", ", parameters_, " parameters"));
}

torch::Tensor VisionTeacher::logits(const torch::Tensor& images) const {
  const at::NoGradGuard no_grad;
  return net_.ptr()->forward(images * scale_ + shift_).index_select(1, order_);
}

}  // namespace hone::task

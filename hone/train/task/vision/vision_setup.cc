// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/vision_setup.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <stop_token>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/log.h"
#include "hone/data/leaves/leaves.h"
#include "hone/train/compress/quantize.h"
#include "hone/train/device.h"
#include "hone/train/interop.h"
#include "hone/train/nn/load_weights.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/task/vision/stored_layers.h"
#include "hone/train/task/vision/vision_model.h"
#include "hone/train/trainer/make_optimizer.h"

namespace hone::task {

namespace {

// The batch size, limited so that no image is in a batch twice.
Index micro_batch_of(const VisionConfig& config, Index images) {
  const Index configured = config.trainer.micro_batch;
  if (configured <= images) return configured;
  log_warning(concat("trainer.micro_batch = ", configured, " is more than the ", images,
                     " training images: batches are of ", images));
  return images;
}

data::ImageCorpus load_corpus(const VisionConfig::Data& config, Index default_side,
                              const std::stop_token& stop) {
  const data::ImageOptions options{.side = config.image_size > 0 ? config.image_size : default_side,
                                   .memory_bytes = config.memory_mb << 20,
                                   .stop = stop};
  if (config.path != data::kLeavesName) {
    return data::load_images(config.path, options, libtorch_executor());
  }
  const data::LeavesCeiling ceiling = data::leaves_ceiling(config.leaves);
  const auto percent = [](double share) { return std::round(1e4 * share) / 100; };
  log_info(concat("leaves: whoever knew the cues exactly would classify ",
                  percent(ceiling.accuracy), " % (+- ", percent(ceiling.standard_error),
                  ") correctly"));
  return data::leaves_corpus(config.leaves, options, libtorch_executor());
}

// The weights of a classifier that hone has compressed, as they compute.
nn::LoadedWeights load_compressed(nn::VisionNetImpl& model, const std::filesystem::path& file,
                                  const nn::LoadOptions& options) {
  const VisionModel from = read_vision_model(file.parent_path());
  nn::dequantize(*from.net.ptr());
  std::vector<NamedTensor> tensors = nn::parameters_by_path(*from.net);
  std::ranges::move(nn::buffers_by_path(*from.net), std::back_inserter(tensors));
  return nn::load_weights(model, std::move(tensors), file.string(), options);
}

// Returns the names of the parameters that were loaded. A classifier with another number of classes
// is expected and does not cause a warning.
std::vector<std::string> initialize(nn::VisionNetImpl& model, const std::string& from) {
  const std::filesystem::path file = nn::weights_file_of(from);
  factor_layers_like(model, file);
  const nn::LoadOptions options{.has_recipes = true};
  nn::LoadedWeights loaded = has_stored_layers(file) ? load_compressed(model, file, options)
                                                     : nn::load_weights(model, file, options);
  const std::string mismatches = loaded.mismatches();
  const std::string text = concat("model.init: ", loaded.tensors, " tensors of ", file.string(),
                                  " loaded", mismatches.empty() ? "" : "; ", mismatches);
  const bool is_backbone_whole =
      loaded.missing.empty() && loaded.unexpected.empty() && loaded.misshaped.empty();
  log(is_backbone_whole ? LogLevel::Info : LogLevel::Warning, text);
  return std::move(loaded.parameters);
}

// What a collapse most likely comes from.
std::optional<CollapseGuardOptions> guard_options(const VisionConfig& config,
                                                  const data::ImageCorpus& corpus,
                                                  Index micro_batch) {
  if (config.loss.on_collapse == "off") return std::nullopt;
  const bool is_paco = config.loss.method == "paco";
  CollapseGuardOptions out;
  out.classes = static_cast<Index>(corpus.classes.size());
  // In fp64, where the product of three large settings does not overflow.
  const double images = static_cast<double>(config.lr.warm_up_steps) *
                        static_cast<double>(micro_batch * config.trainer.accumulation_steps);
  const double epochs = std::ceil(images / static_cast<double>(corpus.train.size()));
  out.warm_up_epochs = static_cast<Index>(std::min(epochs, 1e15));
  out.contrasts = is_paco && config.paco.lambda_pac > 0;
  out.stops = config.loss.on_collapse == "stop";
  out.device = trainer::device_of(config.trainer);
  out.if_silent = "Raise paco.alpha, the margin.";
  if (is_paco && config.paco.ce_weight == "attached" && config.paco.gamma > 0) {
    out.if_shrinking =
        "With paco.ce_weight = attached, smaller features are a smaller loss: set it to detached.";
    out.if_collapsed = out.if_shrinking;
    return out;
  }
  out.if_shrinking = "Lower lr.peak or optim.weight_decay.";
  out.if_collapsed = "Lower lr.peak, or start from trained weights (model.init).";
  if (is_paco && config.paco.lambda_pac > 1) {
    out.if_collapsed = "Lower paco.lambda_pac or lr.peak.";
  }
  return out;
}

// What part contrast has on the CPU only.
void check_for_device(const VisionConfig& config, c10::Device device) {
  if (device.is_cpu() || config.loss.method != "paco") return;
  const PacoConfig& paco = config.paco;
  const std::string with = concat(" with trainer.device = ", config.trainer.device);
  HONE_CHECK(paco.refresh_every == 1, "paco.refresh_every", "1" + with, paco.refresh_every);
  HONE_CHECK(paco.screen_top_m == 0, "paco.screen_top_m", "0" + with, paco.screen_top_m);
  HONE_CHECK(paco.soc_metric == "frobenius", "paco.soc_metric", "frobenius" + with,
             paco.soc_metric);
}

}  // namespace

VisionSetup set_up_vision(const VisionConfig& config, const std::stop_token& stop,
                          const RecordedNet& recorded) {
  const c10::Device device = trainer::device_of(config.trainer);
  check_for_device(config, device);
  select_device("trainer.device", device);
  // Opened before images are loaded, which takes long.
  for (const std::string& folder : {config.model.init, config.distill.teacher}) {
    if (!folder.empty()) MmapFile{nn::weights_file_of(folder)};
  }
  auto data = std::make_shared<VisionData>();
  data->corpus = load_corpus(config.data, recorded.image_side, stop);
  const data::ImageCorpus& corpus = data->corpus;
  const Index side = config.data.image_size, own = corpus.shape.height;
  HONE_CHECK(side == 0 || (side == own && own == corpus.shape.width), "data.image_size",
             concat("0 or ", own, ", the size of these images"), side);
  const Index cut = config.augment.side;
  HONE_CHECK(cut == 0 || (cut <= own && own == corpus.shape.width), "augment.side",
             concat("0, or at most ", own, " for square images"), cut);
  if (corpus.classes.size() < 2) {
    fail_corrupt(config.data.path, "images of at least two classes", concat(corpus.classes.size()));
  }
  data->stats = measure_channels(corpus.train, corpus.shape, stop, libtorch_executor());
  log_info(concat(corpus.name, ": ", corpus.train.size(), " images to train on, ",
                  corpus.held_out.size(), " held out; ", corpus.classes.size(), " classes, ",
                  corpus.shape.channels, " x ", corpus.shape.height, " x ", corpus.shape.width,
                  corpus.train.in_memory() ? "" : ", decoded as they are needed"));
  const auto seed = static_cast<std::uint64_t>(config.trainer.seed);
  nn::VisionSpec spec{.name = config.model.name,
                      .width = config.model.width,
                      .layers = config.model.layers,
                      .channels = corpus.shape.channels,
                      .height = cut > 0 ? cut : corpus.shape.height,
                      .image_width = cut > 0 ? cut : corpus.shape.width,
                      .classes = static_cast<Index>(corpus.classes.size()),
                      .inner_widths = recorded.inner_widths};
  if (!config.model.init.empty()) {
    spec.inner_widths = inner_widths_like(nn::resolve(spec), config.model.init);
  }
  nn::VisionNet model = nn::make_vision_net(spec, seed);
  std::vector<std::string> loaded;
  if (!config.model.init.empty()) loaded = initialize(*model, config.model.init);
  const auto zeros = [](const nn::TensorRequest& request) {
    return at::zeros(request.sizes, request.type);
  };
  factor_layers(*model, recorded.factored, zeros, "checkpoint");
  if (config.backbone_scale == 1) loaded.clear();
  model->set_recompute_every(config.trainer.recompute_every);
  const Index micro_batch = micro_batch_of(config, corpus.train.size());
  HONE_CHECK(!model->mixes_batch() || micro_batch > 1, "trainer.micro_batch",
             concat("at least 2 for the BatchNorm of ", config.model.name), micro_batch);
  std::shared_ptr<const VisionTeacher> teacher;
  if (!config.distill.teacher.empty()) {
    teacher = std::make_shared<VisionTeacher>(
        config.distill.teacher, corpus.classes,
        data::ImageShape{spec.channels, spec.height, spec.image_width}, data->stats, device);
  }
  auto objective = teacher == nullptr
                       ? make_objective(config.loss, config.paco, model, seed, corpus.train.size())
                       : make_distillation(model, teacher, config.loss,
                                           {.temperature = config.distill.temperature,
                                            .alpha = config.distill.alpha});
  const bool channels_last = config.model.channels_last && config.model.name != "mlp";
  if (channels_last) nn::use_channels_last(objective->module());
  objective->module().to(device);
  auto task = std::make_unique<VisionTask>(
      model, std::move(objective), data,
      VisionTaskOptions{.micro_batch = micro_batch,
                        .accumulation_steps = config.trainer.accumulation_steps,
                        .validation_images = config.data.validation_images,
                        .seed = seed,
                        .augmentation = config.augment,
                        .workers = config.data.workers,
                        .prefetch = config.data.prefetch,
                        .channels_last = channels_last,
                        .guard = guard_options(config, corpus, micro_batch)});
  return {std::move(data), model, std::move(task), std::move(loaded), std::move(teacher)};
}

std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(const VisionConfig& config,
                                                            const VisionSetup& setup) {
  trainer::ScaledRate scaled{.factor = config.backbone_scale};
  for (const auto& [name, parameter] : nn::parameters_by_path(*setup.model)) {
    const bool is_scaled = std::ranges::find(setup.scaled, name) != setup.scaled.end();
    if (is_scaled) scaled.parameters.push_back(parameter);
  }
  return trainer::make_optimizer(optim::fill_defaults(config.optim, vision_rules()),
                                 peak_of(config), setup.task->objective().module(), {}, scaled);
}

}  // namespace hone::task

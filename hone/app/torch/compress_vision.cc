// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/compress_vision.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "hone/app/torch/calibration_images.h"
#include "hone/app/torch/eval_vision.h"
#include "hone/app/torch/held_out_images.h"
#include "hone/app/torch/score_part.h"
#include "hone/app/torch/train_run.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/ratio_json.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"
#include "hone/model_io/write_model.h"
#include "hone/train/compress/prune_channels.h"
#include "hone/train/compress/quantize.h"
#include "hone/train/compress/quantized_linear.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/task/vision/metrics/logit_metrics.h"

namespace hone::app {
namespace {

struct PruneStep {
  std::string text;
  bool channels = false;
  nn::PruneScore score = nn::PruneScore::Magnitude;
  double fraction = 0;
  bool global = false;
};

PruneStep parse_prune(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  PruneStep step{.text = text};
  const auto refuse = [&] { fail_argument("--prune", kVisionPruneForms, text); };
  if (words.size() < 2 || words.size() > 3) refuse();
  step.channels = words[0] == "channels";
  const std::string& score = step.channels && words.size() == 3 ? words[2] : words[0];
  if (score == "gradient") {
    step.score = nn::PruneScore::Gradient;
  } else if (score != "magnitude" && score != "channels") {
    refuse();
  }
  const std::string& digits = words[1];
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), step.fraction);
  if (error != std::errc() || end != digits.data() + digits.size() ||
      !(step.fraction > 0 && step.fraction < 1)) {
    refuse();
  }
  step.global = !step.channels && words.size() == 3 && words[2] == "global";
  if (!step.channels && words.size() == 3 && !step.global) refuse();
  return step;
}

// What the options ask for; null if nothing quantizes.
std::optional<nn::QuantizeOptions> quantize_options(const std::vector<std::string>& texts) {
  if (texts.empty()) return std::nullopt;
  nn::QuantizeOptions out;
  out.spec = "float";
  for (const std::string& text : texts) {
    if (text.find('=') != std::string::npos) {
      out.formats.push_back(text);
      continue;
    }
    HONE_CHECK(out.spec == "float", "--quantize",
               "one format for all layers, others as PATTERN=FORMAT",
               concat(out.spec, " and ", text));
    out.spec = text;
  }
  return out;
}

bool has_codes(const torch::nn::Module& net) {
  return std::ranges::any_of(net.modules(), [](const auto& module) {
    return dynamic_cast<const nn::QuantizedLayer*>(module.get()) != nullptr;
  });
}

constexpr Index kExampleImages = 32;  // random, without --data

class Compression {
 public:
  explicit Compression(const CompressVisionOptions& options) : options_(options) {
    for (const std::string& text : options.prune) steps_.push_back(parse_prune(text));
    quantize_ = quantize_options(options.quantize);
    HONE_REQUIRE(!steps_.empty() || quantize_, "compress",
                 "Say what to do to a classifier by --prune or --quantize.");
    const bool needs_labels = std::ranges::any_of(
        steps_, [](const PruneStep& step) { return step.score == nn::PruneScore::Gradient; });
    HONE_REQUIRE(!needs_labels || !options.data.empty(), "--prune",
                 "Gradients need images: name them by --data.");
    model_io::check_model_folder(options.out);
    check_output_spares(options.out, options.model / "model.safetensors");
    if (!options.data.empty() && options.data != "leaves") {
      check_output_outside(options.out, options.data);
    }
    model_ = task::read_vision_model(options.model);
    HONE_REQUIRE(!quantize_ || !has_codes(*model_.net), "--quantize",
                 "The model is quantized already: compress the one that it was made from.");
    if (!options.data.empty()) {
      corpus_ = load_held_out(options.data, model_, options.stop, data::ImageParts::Both);
      calibration_ = load_calibration(corpus_, model_,
                                      {.images = options.calibration_images, .seed = options.seed});
    }
  }

  CompressVisionResult run(Measurer& measurer) {
    CompressVisionResult out;
    Json& document = out.document;
    document["prune"] = Json::array();
    for (const PruneStep& step : steps_) document["prune"].push_back(prune(step));
    document["quantize"] = Json();
    if (quantize_) {
      const nn::QuantizeReport report = quantize(measurer);
      document["quantize"] = to_json(report);
      document["verdict"] = report.verdict;
      if (!report.is_applied && steps_.empty()) return out;
    }
    task::write_vision_model(options_.out, model_);
    out.written = true;
    document["bytes_before"] = std::filesystem::file_size(options_.model / "model.safetensors");
    document["bytes_after"] = std::filesystem::file_size(options_.out / "model.safetensors");
    document["quality"] = options_.data.empty() ? Json() : measure_quality();
    document["out"] = options_.out.string();
    return out;
  }

 private:
  Json prune(const PruneStep& step) {
    const auto loss = [this](Index batch) {
      const auto at = static_cast<std::size_t>(batch);
      return at::cross_entropy_loss(model_.net->forward(calibration_.images[at]),
                                    calibration_.labels[at]);
    };
    const Index batches = std::ssize(calibration_.images);
    model_.net->eval();
    if (!step.channels) {
      const nn::PruneResult result = nn::prune(*model_.net, {.score = step.score,
                                                             .sparsity = step.fraction,
                                                             .global = step.global,
                                                             .loss = loss,
                                                             .batches = batches});
      Json row = to_json(result);
      row["method"] = step.text;
      return row;
    }
    auto* const resnet = dynamic_cast<nn::ResNetImpl*>(model_.net.ptr().get());
    HONE_CHECK(resnet != nullptr, "--prune", "a ResNet, whose channels can be removed",
               model_.net->spec().name);
    nn::ResNet net(std::dynamic_pointer_cast<nn::ResNetImpl>(model_.net.ptr()));
    const nn::PrunedResNet result = nn::prune_channels(
        net, {.score = step.score, .ratio = step.fraction, .loss = loss, .batches = batches});
    model_.net = nn::VisionNet(std::static_pointer_cast<nn::VisionNetImpl>(result.net.ptr()));
    Json layers = Json::array();
    for (const nn::RemovedChannels& layer : result.layers) {
      layers.push_back({{"layer", layer.conv},
                        {"channels_before", layer.before},
                        {"channels_after", layer.kept.size()}});
    }
    return {{"method", step.text},
            {"layers", std::move(layers)},
            {"parameters_before", result.parameters_before},
            {"parameters_after", result.parameters_after}};
  }

  nn::QuantizeReport quantize(Measurer& measurer) {
    quantize_->calibration = calibration_.images;
    if (calibration_.images.empty()) {
      const nn::VisionSpec& spec = model_.net->spec();
      const at::Generator generator = at::detail::createCPUGenerator(options_.seed);
      quantize_->example =
          at::randn({kExampleImages, spec.channels, spec.height, spec.image_width}, generator);
    }
    return nn::quantize(model_.net, *quantize_, &measurer);
  }

  // Compares both folders on the held-out images.
  Json measure_quality() {
    const std::vector<Index> labels = labels_of(corpus_, corpus_.held_out, model_.classes);
    const auto predict = [&](const std::filesystem::path& folder) {
      task::VisionModel model = task::read_vision_model(folder);
      const auto scores = score_part(model, folder, corpus_.held_out, options_.stop);
      return task::predict_classes(scores.logits);
    };
    const std::vector<Index> before = predict(options_.model), after = predict(options_.out);
    std::vector<bool> ours, theirs;
    Index same = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      ours.push_back(after[i] == labels[i]);
      theirs.push_back(before[i] == labels[i]);
      same += after[i] == before[i];
    }
    const VisionComparison comparison = compare_accuracy(ours, theirs, options_.seed);
    const auto images = static_cast<double>(labels.size());
    return {{"images", labels.size()},
            {"accuracy_before", comparison.accuracy},
            {"accuracy_after", static_cast<double>(std::ranges::count(ours, true)) / images},
            {"difference", comparison.difference},
            {"difference_ci", {comparison.low, comparison.high}},
            {"agreement", static_cast<double>(same) / images}};
  }

  const CompressVisionOptions& options_;
  std::vector<PruneStep> steps_;
  std::optional<nn::QuantizeOptions> quantize_;
  task::VisionModel model_{nn::VisionNet(nullptr), {}, {}};
  data::ImageCorpus corpus_;
  CalibrationImages calibration_;
};

std::string percent(const Json& share) { return fixed(100 * share.get<double>(), 2); }

std::string layer_table(const Json& layers) {
  std::vector<std::vector<std::string>> rows{
      {"layer", "", "format", "method", "bytes", "", "error", "speedup", "computes with"}};
  for (const Json& layer : layers) {
    const bool is_applied = layer["status"] == "applied";
    std::vector<std::string> row{layer["path"].get<std::string>(),
                                 layer["status"].get<std::string>()};
    if (is_applied) {
      row.insert(row.end(),
                 {layer["format"].get<std::string>(), layer["algorithm"].get<std::string>(),
                  group_digits(layer["bytes_before"].get<Index>()),
                  group_digits(layer["bytes_after"].get<Index>()),
                  fixed(layer["error"].get<double>(), 4), ratio_text(layer["speedup"]),
                  layer["product"] == "packed" ? "codes" : "a decoded copy"});
    } else {
      row.push_back(layer["reason"].get<std::string>());
    }
    rows.push_back(std::move(row));
  }
  return format_table(rows, "llllrrrrl");
}

}  // namespace

CompressVisionResult compress_vision(const CompressVisionOptions& options, Measurer& measurer) {
  return memory::run_in_memory("compress", [&] {
    prepare_libtorch(options.threads);
    return Compression(options).run(measurer);
  });
}

std::string to_table(const CompressVisionResult& result) {
  const Json& document = result.document;
  std::string text;
  for (const Json& step : document["prune"]) {
    text += concat("prune ", escape_controls(step["method"].get<std::string>()), ": ");
    if (step.contains("parameters_after")) {
      text += concat(group_digits(step["parameters_before"].get<Index>()), " -> ",
                     group_digits(step["parameters_after"].get<Index>()), " parameters\n");
    } else {
      text += concat(percent(step["actual_sparsity"]), " % of ",
                     group_digits(step["original_params"].get<Index>()), " weights are 0\n");
    }
  }
  if (const Json& quantized = document["quantize"]; !quantized.is_null()) {
    text += concat(layer_table(quantized["layers"]), quantized["verdict"].get<std::string>(), "\n");
  }
  if (!result.written) return text;
  text += concat("file: ", format_bytes(document["bytes_before"].get<Index>()), " -> ",
                 format_bytes(document["bytes_after"].get<Index>()), "\n");
  if (const Json& quality = document["quality"]; !quality.is_null()) {
    text += concat("accuracy on ", group_digits(quality["images"].get<Index>()),
                   " held-out images: ", percent(quality["accuracy_before"]), " -> ",
                   percent(quality["accuracy_after"]), " %, difference ",
                   percent(quality["difference"]), " points [",
                   percent(quality["difference_ci"][0]), ", ", percent(quality["difference_ci"][1]),
                   "]; the same class for ", percent(quality["agreement"]), " % of the images\n");
  }
  return text + concat("written: ", escape_controls(document["out"].get<std::string>()), "\n");
}

}  // namespace hone::app

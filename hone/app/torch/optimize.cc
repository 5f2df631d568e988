// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/optimize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "hone/app/torch/calibration_images.h"
#include "hone/app/torch/held_out_images.h"
#include "hone/app/torch/train_run.h"
#include "hone/app/vision_folder.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/ratio_json.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"
#include "hone/model_io/write_model.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/serve/production.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::app {
namespace {

using torch::Tensor;

constexpr Index kCalibrationImages = 512;
constexpr Index kMostValues = Index{1} << 28;  // of an example

// Seeded inputs, normal as those of a classifier are.
Tensor random_inputs(const std::vector<std::int64_t>& sizes, std::uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(sizes, generator);
}

OptimizeResult optimize_classifier(const OptimizeOptions& options, Measurer& measurer) {
  HONE_CHECK(options.shape.empty(), "--shape", "no shape of a classifier, whose images have one",
             "one");
  const std::optional<nn::FreezeLevel> level = nn::find_level(options.level);
  HONE_CHECK(level.has_value(), "--level", "exact, standard or aggressive", options.level);
  HONE_CHECK(options.batch >= 1 && options.batch <= 4096, "--batch", "1 to 4096", options.batch);
  if (!options.out.empty()) {
    model_io::check_model_folder(options.out);
    check_output_spares(options.out, options.model / "model.safetensors");
  }
  task::VisionModel model = task::read_vision_model(options.model);
  const nn::VisionSpec& spec = model.net->spec();
  nn::ProductionOptions production{.level = *level, .max_error = options.max_error};
  Tensor example =
      random_inputs({options.batch, spec.channels, spec.height, spec.image_width}, options.seed);
  if (!options.data.empty()) {
    const data::ImageCorpus corpus =
        load_held_out(options.data, model, options.stop, data::ImageParts::Both);
    production.calibration =
        load_calibration(
            corpus, model,
            {.images = kCalibrationImages, .batch = options.batch, .seed = options.seed})
            .images;
    example = production.calibration.front();
  }
  model.net->eval();
  const nn::ProductionReport report =
      nn::optimize_for_production(model.net, example, measurer, production);
  OptimizeResult out{.document = to_json(report)};
  out.document["model"] = options.model.string();
  out.document["level"] = options.level;
  const bool has_lost = std::ranges::any_of(report.stages, [&](const nn::ProductionStage& stage) {
    return stage.status == nn::CompressionStatus::Failed && stage.name == "quantize";
  });
  if (has_lost && options.data.empty()) {
    out.document["verdict"] =
        concat(report.verdict, " The inputs were random; --data measures on images.");
  }
  const bool has_codes = report.quantization && report.quantization->is_applied &&
                         report.stages.back().status == nn::CompressionStatus::Applied;
  if (!options.out.empty() && has_codes) {
    task::write_vision_model(options.out, model);
    out.written = true;
  }
  return out;
}

OptimizeResult optimize_script_file(const OptimizeOptions& options, Measurer& measurer) {
  HONE_REQUIRE(!options.shape.empty(), "--shape",
               "A TorchScript file does not say what it takes: give the shape of its input, such "
               "as 1x3x224x224.");
  HONE_REQUIRE(options.data.empty(), "--data", "This option is for classifiers.");
  Index values = 1;
  for (const Index size : options.shape) {
    HONE_CHECK(size >= 1 && size <= kMostValues / values, "--shape",
               concat("sizes of at least 1, together at most ", kMostValues), size);
    values *= size;
  }
  const nn::ScriptReport report = nn::optimize_script(
      options.model, random_inputs(options.shape, options.seed), measurer, options.out);
  OptimizeResult out{.document = to_json(report)};
  out.document["model"] = options.model.string();
  out.written = !options.out.empty() && report.chosen() != nullptr;
  return out;
}

std::string forms_table(const Json& forms) {
  std::vector<std::vector<std::string>> rows{{"TorchScript", "ms", "speedup", ""}};
  for (const Json& form : forms) {
    if (form["works"].get<bool>()) {
      rows.push_back({form["form"].get<std::string>(), fixed(form["ms"].get<double>(), 3),
                      ratio_text(form["speedup"]), form["problem"].get<std::string>()});
    } else {
      rows.push_back({form["form"].get<std::string>(), "-", "-",
                      escape_controls(form["problem"].get<std::string>())});
    }
  }
  return format_table(rows, "lrrl");
}

}  // namespace

OptimizeResult optimize_model(const OptimizeOptions& options, Measurer& measurer) {
  return memory::run_in_memory("optimize", [&] {
    prepare_libtorch(options.threads);
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(options.model, ignored);
    if (is_folder && !is_vision_model(options.model)) {
      fail_unsupported(options.model.string(), "a classifier of images or a TorchScript file",
                       "another folder; hone compress takes language models");
    }
    OptimizeResult out = is_folder ? optimize_classifier(options, measurer)
                                   : optimize_script_file(options, measurer);
    out.document["out"] = out.written ? Json(options.out.string()) : Json();
    return out;
  });
}

std::string to_table(const OptimizeResult& result) {
  const Json& document = result.document;
  std::string text;
  if (document.contains("stages")) {
    std::vector<std::vector<std::string>> rows{
        {"stage", "", "layers", "bytes", "error", "speedup", ""}};
    for (const Json& stage : document["stages"]) {
      const bool is_applied = stage["status"] == "applied";
      rows.push_back(
          {stage["stage"].get<std::string>(), stage["status"].get<std::string>(),
           is_applied ? group_digits(stage["layers"].get<Index>()) : "-",
           group_digits(stage["bytes_after"].get<Index>()), fixed(stage["error"].get<double>(), 5),
           is_applied ? ratio_text(stage["speedup"]) : "-", stage["reason"].get<std::string>()});
    }
    text += format_table(rows, "llrrrrl");
    if (!document["torchscript"].is_null()) {
      text += "\n" + forms_table(document["torchscript"]["forms"]) + "\n";
    }
  } else {
    text += forms_table(document["forms"]);
  }
  text += concat(document["verdict"].get<std::string>(), "\n");
  if (!result.written) return text + "Nothing was written.\n";
  return text + concat("written: ", escape_controls(document["out"].get<std::string>()), "\n");
}

}  // namespace hone::app

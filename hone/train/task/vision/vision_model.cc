// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/vision_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/core/names.h"
#include "hone/model_io/json_fields.h"
#include "hone/model_io/write_model.h"
#include "hone/train/compress/quantizable.h"
#include "hone/train/nn/load_weights.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/task/vision/factored_layers.h"
#include "hone/train/task/vision/stored_layers.h"
#include "hone/train/tensor_file.h"

namespace hone::task {
namespace {

namespace fs = std::filesystem;

using model_io::JsonFields;

constexpr Index kMaxWidth = 1 << 16, kMaxLayers = 64, kMaxSide = 4096, kMaxClasses = 65535;
// Each part searches the whole map, and has a mark for each of its cells.
constexpr Index kMaxParts = 1024;
constexpr Index kMaxInnerWidths = 1024;  // numbers in a list
constexpr const char* kDecodedLayers = "decoded_layers";

std::vector<NamedTensor> tensors_of(const nn::VisionNetImpl& net,
                                    const std::set<std::string>& left_out) {
  std::vector<NamedTensor> out = nn::parameters_by_path(net);
  std::ranges::move(nn::buffers_by_path(net), std::back_inserter(out));
  std::erase_if(out, [&](const NamedTensor& tensor) { return left_out.contains(tensor.name); });
  return out;
}

Index read_count(const JsonFields& config, std::string_view key, Index least, Index most) {
  const Index value = config.required_integer(key);
  if (value < least || value > most) config.refuse(key, concat(least, " to ", most), concat(value));
  return value;
}

const Json& read_array(const JsonFields& config, std::string_view key, Index least, Index most) {
  const Json* array = config.find(key);
  if (array == nullptr || !array->is_array()) config.refuse(key, "an array", "none");
  const auto size = static_cast<Index>(array->size());
  if (size < least || size > most) {
    config.refuse(key, concat(least, " to ", most, " entries"), concat(size));
  }
  return *array;
}

std::vector<double> read_numbers(const JsonFields& config, std::string_view key, Index count,
                                 double least) {
  std::vector<double> out;
  for (const Json& item : read_array(config, key, count, count)) {
    if (!item.is_number() || !(item.get<double>() >= least && item.get<double>() <= 1)) {
      config.refuse(key, concat("numbers from ", least, " to 1"), item.dump());
    }
    out.push_back(item.get<double>());
  }
  return out;
}

std::vector<std::string> read_classes(const JsonFields& config) {
  std::vector<std::string> out;
  for (const Json& item : read_array(config, "classes", 2, kMaxClasses)) {
    if (!item.is_string()) config.refuse("classes", "strings", item.dump());
    out.push_back(item.get<std::string>());
  }
  const Index again = find_duplicate(
      std::ssize(out), [&](Index i) { return std::string_view(out[static_cast<std::size_t>(i)]); });
  if (again >= 0) {
    config.refuse("classes", "different names",
                  concat(quote_name(out[static_cast<std::size_t>(again)]), " twice"));
  }
  return out;
}

nn::VisionSpec read_spec(const JsonFields& config, Index classes) {
  const nn::VisionSpec spec{.name = config.string("model").value_or(""),
                            .width = read_count(config, "width", 1, kMaxWidth),
                            .layers = read_count(config, "layers", 0, kMaxLayers),
                            .channels = read_count(config, "channels", 1, 3),
                            .height = read_count(config, "height", 1, kMaxSide),
                            .image_width = read_count(config, "image_width", 1, kMaxSide),
                            .classes = classes,
                            .inner_widths = read_inner_widths(config)};
  try {
    return nn::resolve(spec);
  } catch (const Error& error) {
    throw Error(ErrorCategory::CorruptFile, concat(config.where(), ": ", error.what()));
  }
}

// A net of the tensors in a file, with these factored layers. What they replace is not in the file,
// and takes no memory.
nn::VisionNet read_net(const nn::VisionSpec& spec, const fs::path& file,
                       const std::vector<FactoredLayer>& factored, const std::string& config) {
  ClassifierFile stored(file);
  std::set<std::string> replaced;
  for (const FactoredLayer& layer : factored) {
    for (const char* name : {".weight", ".bias"}) replaced.insert(layer.name + name);
  }
  const auto take = [&](const nn::TensorRequest& request) { return stored.take(request); };
  nn::VisionNet net = nn::make_vision_net(spec, [&](const nn::TensorRequest& request) {
    if (!replaced.contains(request.name)) return take(request);
    return at::zeros({}, request.type).expand(request.sizes);
  });
  factor_layers(*net, factored, take, config);
  stored.finish(*net);
  return net;
}

// Sets the quantized layers in "decoded_layers" to compute with a copy of their weight in f32.
void read_decoded_layers(const JsonFields& config, nn::VisionNetImpl& net) {
  if (!config.has(kDecodedLayers)) return;
  const std::vector<nn::QuantizedPlace> places = nn::quantized_layers(net);
  for (const Json& item : read_array(config, kDecodedLayers, 0, std::ssize(places))) {
    const auto found = std::ranges::find_if(
        places, [&](const nn::QuantizedPlace& place) { return item == place.path; });
    if (found == places.end()) config.refuse(kDecodedLayers, "quantized layers", item.dump());
    found->layer->set_product(nn::ProductKind::Decoded);
  }
}

Json decoded_layers_json(nn::VisionNetImpl& net) {
  Json out = Json::array();
  for (const nn::QuantizedPlace& place : nn::quantized_layers(net)) {
    if (place.layer->product() == nn::ProductKind::Decoded) out.push_back(place.path);
  }
  return out;
}

// "image_side"; models that were written before it existed have none.
Index read_image_side(const JsonFields& config, const nn::VisionSpec& spec) {
  if (!config.has("image_side")) return 0;
  const Index side = read_count(config, "image_side", 0, kMaxSide);
  const Index least = std::max(spec.height, spec.image_width);
  if (side != 0 && (side < least || spec.height != spec.image_width)) {
    config.refuse("image_side", concat("0, or at least ", least, " for a square"), concat(side));
  }
  return side;
}

Json leaves_json(const data::LeavesOptions& leaves) {
  return {{"classes", leaves.classes}, {"size", leaves.size}, {"train", leaves.train},
          {"val", leaves.val},         {"test", leaves.test}, {"difficulty", leaves.difficulty},
          {"seed", leaves.seed}};
}

// "leaves" of a model whose classes and image shape are known.
std::optional<data::LeavesOptions> read_leaves(const JsonFields& config, Index classes,
                                               const data::ImageShape& shape) {
  const std::optional<JsonFields> fields = config.object("leaves");
  if (!fields) return std::nullopt;
  const data::LeavesOptions leaves{.classes = fields->required_integer("classes"),
                                   .size = fields->required_integer("size"),
                                   .train = fields->required_integer("train"),
                                   .val = fields->required_integer("val"),
                                   .test = fields->required_integer("test"),
                                   .difficulty = fields->required_number("difficulty"),
                                   .seed = fields->required_integer("seed")};
  try {
    data::check_leaves(leaves);
  } catch (const Error& error) {
    throw Error(ErrorCategory::CorruptFile, concat(config.where(), ": ", error.what()));
  }
  if (leaves.classes != classes || shape != data::ImageShape{3, leaves.size, leaves.size}) {
    config.refuse("leaves", "the classes and the size of the model's images",
                  concat(leaves.classes, " classes, ", leaves.size, " pixels a side"));
  }
  return leaves;
}

// The values of a choice, by their names in config.json.
template <class Value>
using ChoiceTable = std::array<std::pair<std::string_view, Value>, 2>;
using Stage = nn::ResNetImpl::Stage;
constexpr ChoiceTable<Stage> kStages = {
    {{"last", Stage::Last}, {"penultimate", Stage::Penultimate}}};
constexpr ChoiceTable<paco::Saliency> kSaliencies = {
    {{"attention", paco::Saliency::Attention}, {"norm", paco::Saliency::Norm}}};
constexpr ChoiceTable<paco::Suppression> kSuppressions = {
    {{"window", paco::Suppression::Window}, {"fraction", paco::Suppression::Fraction}}};

template <class Value>
std::string_view name_of(const ChoiceTable<Value>& choice, Value value) {
  return choice[choice[0].second == value ? 0 : 1].first;
}

template <class Value>
Value read_choice(const JsonFields& fields, std::string_view key,
                  const ChoiceTable<Value>& choice) {
  const std::string name = fields.string(key).value_or("");
  for (const auto& [known, value] : choice) {
    if (name == known) return value;
  }
  fields.refuse(key, concat(choice[0].first, " or ", choice[1].first), quote_name(name));
}

Json parts_json(const PartSpec& parts) {
  const paco::SamplerOptions& sampler = parts.sampler;
  return {{"stage", name_of(kStages, parts.stage)},
          {"count", sampler.parts},
          {"window", sampler.window},
          {"saliency", name_of(kSaliencies, sampler.saliency)},
          {"suppression", name_of(kSuppressions, sampler.suppression)},
          {"fraction", sampler.fraction},
          {"repeats", sampler.allow_repeats}};
}

std::optional<PartSpec> read_parts(const JsonFields& config, const nn::VisionSpec& spec) {
  const std::optional<JsonFields> fields = config.object("parts");
  if (!fields) return std::nullopt;
  if (nn::find_resnet(spec.name) == nullptr) {
    config.refuse("parts", "no parts of a model other than a ResNet", "parts");
  }
  PartSpec parts{.stage = read_choice(*fields, "stage", kStages), .sampler = {}};
  paco::SamplerOptions& sampler = parts.sampler;
  const auto [rows, columns] = nn::map_cells(spec, parts.stage);
  sampler.parts = read_count(*fields, "count", 1, std::min(rows * columns, kMaxParts));
  sampler.window = read_count(*fields, "window", 1, kMaxSide);
  sampler.saliency = read_choice(*fields, "saliency", kSaliencies);
  sampler.suppression = read_choice(*fields, "suppression", kSuppressions);
  sampler.fraction = fields->required_number("fraction");
  if (!(sampler.fraction >= 0 && sampler.fraction <= 1)) {
    fields->refuse("fraction", "0 to 1", concat(sampler.fraction));
  }
  sampler.allow_repeats = fields->boolean("repeats").value_or(false);
  return parts;
}

}  // namespace

data::ImageShape VisionModel::image_shape() const {
  const nn::VisionSpec& spec = net->spec();
  if (image_side > 0) return {spec.channels, image_side, image_side};
  return {spec.channels, spec.height, spec.image_width};
}

data::AugmentOptions VisionModel::cut() const {
  return {.side = image_side > 0 ? net->spec().height : 0};
}

std::vector<Index> read_inner_widths(const JsonFields& config) {
  std::vector<Index> out;
  if (!config.has("inner_widths")) return out;
  for (const Json& item : read_array(config, "inner_widths", 1, kMaxInnerWidths)) {
    if (!item.is_number_integer()) config.refuse("inner_widths", "whole numbers", item.dump());
    out.push_back(item.get<Index>());
  }
  return out;
}

std::vector<Index> inner_widths_like(const nn::VisionSpec& spec, const fs::path& weights) {
  const fs::path path = nn::weights_file_of(weights).parent_path() / "config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  const Json json = read_json_file(path);
  if (!json.is_object() || json.value("format", Json()) != kVisionFormat) return {};
  const JsonFields config(json, path.string());
  const bool is_same = config.string("model").value_or("") == spec.name &&
                       config.integer("width").value_or(0) == spec.width;
  return is_same ? read_inner_widths(config) : std::vector<Index>();
}

VisionModel read_vision_model(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    const bool is_run = fs::exists(folder / "model" / "config.json", ignored);
    fail(ErrorCategory::NotFound, folder.string(), "a model folder with config.json",
         is_run                        ? "a run, whose model is in its folder model/"
         : fs::exists(folder, ignored) ? "none in it"
                                       : "nothing");
  }
  const Json json = read_json_file(path);
  const JsonFields config(json, path.string());
  const std::string format = config.string("format").value_or("another");
  if (format != kVisionFormat) {
    fail_unsupported(path.string(), concat("a classifier of images (format ", kVisionFormat, ")"),
                     quote_name(format));
  }
  std::vector<std::string> classes = read_classes(config);
  const nn::VisionSpec spec = read_spec(config, static_cast<Index>(classes.size()));
  ChannelStats stats{.mean = read_numbers(config, "mean", spec.channels, 0),
                     .std = read_numbers(config, "std", spec.channels, 1e-9)};
  VisionModel model{.net = read_net(spec, folder / "model.safetensors",
                                    model_io::read_factored_layers(config), path.string()),
                    .classes = std::move(classes),
                    .stats = std::move(stats),
                    .image_side = read_image_side(config, spec)};
  read_decoded_layers(config, *model.net);
  model.leaves = read_leaves(config, spec.classes, model.image_shape());
  model.parts = read_parts(config, spec);
  return model;
}

void write_vision_model(const fs::path& folder, const VisionModel& model) {
  const nn::VisionSpec& spec = model.net->spec();
  Json config = {{"format", kVisionFormat},
                 {"model", spec.name},
                 {"width", spec.width},
                 {"layers", spec.layers},
                 {"channels", spec.channels},
                 {"height", spec.height},
                 {"image_width", spec.image_width},
                 {"image_side", model.image_side},
                 {"classes", model.classes},
                 {"mean", model.stats.mean},
                 {"std", model.stats.std}};
  if (!spec.inner_widths.empty()) config["inner_widths"] = spec.inner_widths;
  Json decoded = decoded_layers_json(*model.net.ptr());
  if (!decoded.empty()) config[kDecodedLayers] = std::move(decoded);
  if (model.leaves) config["leaves"] = leaves_json(*model.leaves);
  if (model.parts) config["parts"] = parts_json(*model.parts);
  const std::vector<FactoredLayer> factored = factored_layers_of(*model.net.ptr());
  if (!factored.empty()) config["factored_layers"] = model_io::write_factored_layers(factored);
  AtomicFolder out(folder, model_io::check_model_folder);
  write_json_file(out.staging() / "config.json", config);
  StoredLayers stored = stored_layers_of(*model.net.ptr());
  for (const FactoredLayer& layer : factored) stored.replaced.insert(layer.name + ".sketch");
  stored.metadata.emplace_back("format", "pt");
  std::ranges::move(tensors_of(*model.net, stored.replaced), std::back_inserter(stored.tensors));
  write_tensors(out.staging() / "model.safetensors", stored.tensors, stored.metadata);
  out.commit();
}

}  // namespace hone::task

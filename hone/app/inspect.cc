// SPDX-License-Identifier: Apache-2.0
#include "hone/app/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "hone/app/vision_folder.h"
#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/gguf.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/names.h"
#include "hone/infer/kv_size.h"
#include "hone/model_io/artifact_manifest.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/json_fields.h"
#include "hone/model_io/metadata/gguf_metadata.h"
#include "hone/model_io/model_file.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using model_io::Architecture;
using model_io::ModelFile;
using model_io::NamedMatrix;
using model_io::RopePairing;
using model_io::RopeScaling;
using model_io::RopeSpec;

// What the KV cache of one sequence takes, by its type.
Json kv_cache_json(const model_io::Architecture& a) {
  Json sizes = Json::object();
  for (const auto dtype :
       {infer::KvDtype::Float16, infer::KvDtype::Float32, infer::KvDtype::Int8}) {
    sizes[std::string(infer::name_of(dtype))] = {
        {"bytes_per_token", infer::kv_token_bytes(a, dtype)},
        {"bytes_at_context", infer::kv_cache_bytes(a, dtype, a.context)}};
  }
  return sizes;
}

class ValueStats {
 public:
  void add(const StoredMatrix& matrix) {
    std::vector<float> row(static_cast<std::size_t>(matrix.cols));
    for (Index r = 0; r < matrix.rows; ++r) {
      decode_row(matrix, r, row);
      for (const float value : row) add(value);
    }
  }
  // The min and max of the finite values (null if there are none), and the numbers of NaN and
  // infinite values.
  Json json() const {
    Json stats = {{"min", nullptr}, {"max", nullptr}, {"nan", nans_}, {"inf", infinities_}};
    if (low_ <= high_) stats["min"] = low_;
    if (low_ <= high_) stats["max"] = high_;
    return stats;
  }

 private:
  void add(double value) {
    if (std::isnan(value)) {
      ++nans_;
    } else if (std::isinf(value)) {
      ++infinities_;
    } else {
      low_ = std::min(low_, value);
      high_ = std::max(high_, value);
    }
  }

  double low_ = std::numeric_limits<double>::infinity(), high_ = -low_;
  Index nans_ = 0, infinities_ = 0;
};

ValueStats measure_values(const StoredMatrix& matrix) {
  ValueStats stats;
  stats.add(matrix);
  return stats;
}

// Decodes a part of the values at a time.
ValueStats measure_values(const SafetensorsTensor& tensor) {
  constexpr Index kAtOnce = 65'536;
  const Index values = tensor.shape.elements(), whole = values / kAtOnce;
  const auto first = static_cast<std::size_t>(whole * kAtOnce * bytes_of(tensor.dtype));
  StoredMatrix part;
  part.dtype = tensor.dtype;
  ValueStats stats;
  part.rows = whole;
  part.cols = kAtOnce;
  part.bytes = tensor.bytes.first(first);
  stats.add(part);
  part.rows = 1;
  part.cols = values % kAtOnce;
  part.bytes = tensor.bytes.subspan(first);
  stats.add(part);
  return stats;
}

Json tensor_row(const NamedMatrix& tensor, bool stats) {
  const StoredMatrix& matrix = tensor.matrix;
  Json shape = Json::array();
  if (!tensor.is_vector) shape.push_back(matrix.rows);
  shape.push_back(matrix.cols);
  Json row = {{"name", tensor.name},
              {"dtype", type_text(matrix)},
              {"shape", std::move(shape)},
              {"bytes", matrix.stored_bytes()}};
  if (stats) row.update(measure_values(matrix).json());
  return row;
}

// Traits that differ from Llama's.
void add_traits(const Architecture& a, Json& json) {
  const auto add = [&](const char* key, bool differs, const Json& value) {
    if (differs) json[key] = value;
  };
  add("norm", a.norm == model_io::NormKind::Layer, "layer");
  add("norm_offset", a.norm_offset != 0, a.norm_offset);
  add("pre_norms", !a.pre_norms, false);
  add("post_norms", a.post_norms, true);
  add("activation", a.mlp != model_io::MlpKind::SiluGate,
      a.mlp == model_io::MlpKind::GeluTanh ? "gelu_tanh" : "gelu_tanh_gate");
  add("qk_norm", a.qk_norm != model_io::QkNorm::None,
      a.qk_norm == model_io::QkNorm::Head ? "head" : "row");
  add("positions", a.learned_positions, "learned");
  add("windows", !a.windows.empty(), a.windows);
  add("embedding_scale", a.embedding_scale != 1, a.embedding_scale);
  add("attention_scale", a.attention_scale != 0, a.attention_scale);
  add("inverse_layer_scale", a.inverse_layer_scale, true);
  add("attention_soft_cap", a.attention_soft_cap != 0, a.attention_soft_cap);
  add("logit_soft_cap", a.logit_soft_cap != 0, a.logit_soft_cap);
  add("layer_heads", !a.layer_heads.empty(), a.layer_heads);
  add("layer_intermediate_sizes", !a.layer_intermediate.empty(), a.layer_intermediate);
}

Json architecture_json(const Architecture& a) {
  Json json = {{"family", a.family},
               {"vocab_size", a.vocab_size},
               {"hidden_size", a.hidden_size},
               {"intermediate_size", a.intermediate_size},
               {"layers", a.layers},
               {"heads", a.heads},
               {"kv_heads", a.kv_heads},
               {"head_dim", a.head_dim},
               {"context", a.context},
               {"norm_eps", a.norm_eps},
               {"attention_bias", a.attention_bias},
               {"mlp_bias", a.mlp_bias},
               {"bos_id", nullptr}};
  if (a.bos_id) json["bos_id"] = *a.bos_id;
  add_traits(a, json);
  if (!a.factored.empty()) {
    json["factored_layers"] = model_io::write_factored_layers(a.factored);
  }
  return json;
}

std::string_view scaling_text(const RopeSpec& rope) {
  switch (rope.scaling) {
    case RopeScaling::None:
      return rope.frequency_divisors.empty() ? "default" : "divisors";
    case RopeScaling::Linear:
      return "linear";
    case RopeScaling::Llama3:
      return "llama3";
    case RopeScaling::Yarn:
      break;
  }
  return "yarn";
}

Json rope_json(const RopeSpec& rope) {
  Json json = {{"pairing", rope.pairing == RopePairing::HalfSplit ? "half-split" : "adjacent"},
               {"type", scaling_text(rope)},
               {"base", rope.theta},
               {"rotary_dims", rope.rotary_dims}};
  if (rope.scaling != RopeScaling::None) json["factor"] = rope.factor;
  return json;
}

Json tokenizer_json(const ModelFile& model) {
  const auto tokenizer = model.tokenizer();
  if (tokenizer == nullptr) return nullptr;
  Json json = {{"kind", tokenizer->kind()},
               {"size", tokenizer->vocab_size()},
               {"adds_bos", tokenizer->adds_bos()},
               {"stop_ids", model.architecture().stop_ids}};
  return json;
}

// How many tensors and bytes there are of each type.
Json types_json(const Json& tensors) {
  Json types = Json::object();
  for (const Json& tensor : tensors) {
    Json& row = types[tensor["dtype"].get<std::string>()];
    if (row.is_null()) row = {{"tensors", 0}, {"bytes", 0}};
    row["tensors"] = row["tensors"].get<Index>() + 1;
    row["bytes"] = row["bytes"].get<Index>() + tensor["bytes"].get<Index>();
  }
  return types;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json inspect_model(const ModelFile& model, bool stats) {
  const Architecture& a = model.architecture();
  Json tensors = Json::array();
  for (const NamedMatrix& tensor : model.tensors()) tensors.push_back(tensor_row(tensor, stats));
  const model_io::ModelMetadata& metadata = model.metadata();
  return {{"format", name_of(model.format())},
          {"name", text_or_null(metadata.text(model_io::kNameKey))},
          {"license", text_or_null(metadata.text(model_io::kLicenseKey))},
          {"architecture", architecture_json(a)},
          {"parameters", a.parameters()},
          {"bytes", model.file_bytes()},
          {"kv_bytes_per_token", infer::kv_token_bytes(a, infer::KvDtype::Float16)},
          {"kv_cache", kv_cache_json(a)},
          {"tied", a.tied_embeddings},
          {"rope", rope_json(a.rope)},
          {"tokenizer", tokenizer_json(model)},
          {"chat_template", !metadata.chat_templates().empty()},
          {"types", types_json(tensors)},
          {"tensors", std::move(tensors)}};
}

Json container_json(std::string_view format, Json tensors, Index parameters, Index bytes) {
  return {{"format", format}, {"architecture", nullptr},      {"parameters", parameters},
          {"bytes", bytes},   {"types", types_json(tensors)}, {"tensors", std::move(tensors)}};
}

Json inspect_safetensors(const InspectOptions& options) {
  const MmapFile file(options.file);
  const SafetensorsFile content = parse_safetensors(file.bytes(), options.file.string());
  Json tensors = Json::array();
  Index parameters = 0;
  for (const SafetensorsTensor& tensor : content.tensors) {
    Json row = {
        {"name", tensor.name},
        {"dtype", name_of(tensor.dtype)},
        {"shape", std::vector<Index>(tensor.shape.dims().begin(), tensor.shape.dims().end())},
        {"bytes", tensor.bytes.size()}};
    parameters += tensor.shape.elements();
    if (options.stats && is_floating(tensor.dtype)) row.update(measure_values(tensor).json());
    tensors.push_back(std::move(row));
  }
  Json document = container_json("safetensors", std::move(tensors), parameters,
                                 static_cast<Index>(file.bytes().size()));
  if (!content.metadata.empty()) {
    Json::object_t metadata;  // whose keys the parser has compared; assigning to each does it again
    for (const auto& [key, value] : content.metadata) metadata.emplace_back(key, value);
    document["metadata"] = std::move(metadata);
  }
  file.check_intact();
  return document;
}

// A mean, a variance or a count of BatchNorm, which training does not change by gradients.
bool is_buffer(std::string_view name) {
  return name.ends_with("running_mean") || name.ends_with("running_var") ||
         name.ends_with("num_batches_tracked");
}

// The weights that a classifier's file stores as blobs, which its metadata describes.
Index parameters_of_codes(const fs::path& file, const Json& metadata) {
  const std::string key(model_io::kManifestKey);
  if (!metadata.is_object() || !metadata.contains(key)) return 0;
  const std::string where = concat(file.string(), ": ", key);
  const Json manifest = parse_json(metadata[key].get<std::string>(), where, {.depth = 4});
  if (!manifest.is_object()) fail_corrupt(where, "a JSON object", manifest.type_name());
  Index parameters = 0;
  for (const auto& [name, json] : manifest.items()) {
    const model_io::JsonFields fields(json, concat(where, ": ", quote_name(name)));
    parameters += checked_mul(fields.required_integer("rows"), fields.required_integer("cols"),
                              fields.where());
  }
  return parameters;
}

Json inspect_classifier(const InspectOptions& options) {
  const fs::path path = options.file / "config.json";
  const Json json = read_json_file(path);
  const model_io::JsonFields config(json, path.string());
  Json architecture = {{"family", config.string("model").value_or("")}};
  for (const char* key : {"width", "layers", "channels", "height", "image_width"}) {
    if (std::string_view(key) == "layers" && architecture["family"] != "mlp") continue;
    architecture[key] = config.required_integer(key);
  }
  // Images are scaled to this side before the model's input is cut out; 0: to that.
  architecture["image_side"] = config.integer("image_side").value_or(0);
  for (const char* key : {"mean", "std", "leaves", "parts"}) {
    if (const Json* value = config.find(key)) architecture[key] = *value;
  }
  const Json* classes = config.find("classes");
  const auto is_name = [](const Json& name) { return name.is_string(); };
  if (classes == nullptr || !classes->is_array() || !std::ranges::all_of(*classes, is_name)) {
    config.refuse("classes", "an array of names", classes == nullptr ? "none" : "another value");
  }
  InspectOptions weights = options;
  weights.file = options.file / "model.safetensors";
  Json document = inspect_safetensors(weights);
  Index parameters = parameters_of_codes(weights.file, document["metadata"]);
  document.erase("metadata");
  for (const Json& tensor : document["tensors"]) {
    if (is_buffer(tensor["name"].get<std::string>()) || tensor["dtype"] == "u8") continue;
    Index elements = 1;
    for (const Json& size : tensor["shape"]) elements *= size.get<Index>();
    parameters += elements;
  }
  document["parameters"] = parameters;
  document["format"] = "hone-vision";
  document["architecture"] = std::move(architecture);
  document["classes"] = *classes;
  return document;
}

// Describes the header of a GGUF file that hone cannot run, and why.
Json inspect_gguf_header(const InspectOptions& options, std::string_view reason) {
  const MmapFile file(options.file);
  const GgufFile content = parse_gguf(file.bytes(), options.file.string());
  Json tensors = Json::array();
  Index parameters = 0;
  for (const GgufTensor& tensor : content.tensors()) {
    Json shape = Json::array();
    Index elements = 1;
    for (int i = tensor.rank - 1; i >= 0; --i) {
      shape.push_back(tensor.dims[static_cast<std::size_t>(i)]);
      elements *= tensor.dims[static_cast<std::size_t>(i)];
    }
    parameters += elements;
    tensors.push_back({{"name", tensor.name},
                       {"dtype", gguf_type_info(tensor.type, tensor.name).name},
                       {"shape", std::move(shape)},
                       {"bytes", tensor.bytes.size()}});
  }
  Json document = container_json("gguf", std::move(tensors), parameters,
                                 static_cast<Index>(file.bytes().size()));
  const model_io::ModelMetadata metadata =
      model_io::read_gguf_metadata(content, true, options.file.string());
  document["name"] = text_or_null(metadata.text(model_io::kNameKey));
  document["license"] = text_or_null(metadata.text(model_io::kLicenseKey));
  document["chat_template"] = !metadata.chat_templates().empty();
  if (const auto family = content.string("general.architecture"))
    document["architecture"] = {{"family", *family}};
  document["not_served"] = reason;
  return document;
}

bool is_gguf(const fs::path& path) {
  if (!fs::is_regular_file(path)) return false;
  const MmapFile file(path);
  return file.bytes().size() >= 4 && std::memcmp(file.bytes().data(), "GGUF", 4) == 0;
}

}  // namespace

Json inspect_file(const InspectOptions& options) {
  std::error_code ignored;
  if (options.file.extension() == ".safetensors" && !fs::is_directory(options.file, ignored))
    return inspect_safetensors(options);
  if (is_vision_model(options.file)) return inspect_classifier(options);
  try {
    const auto model = model_io::open_model_or_throw(
        options.file, {.tokenizer = options.tokenizer, .need_tokenizer = false});
    Json document = inspect_model(*model, options.stats);
    model->check_intact();
    return document;
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::Unsupported || !is_gguf(options.file)) throw;
    return inspect_gguf_header(options, error.what());
  }
}

}  // namespace hone::app

// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <utility>

#include "hone/core/bf16.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/names.h"
#include "hone/model_io/artifact_manifest.h"
#include "hone/model_io/family/bind_tensors.h"
#include "hone/model_io/hf_config.h"
#include "hone/model_io/loaded_model.h"
#include "hone/model_io/metadata/hf_metadata.h"
#include "hone/model_io/shard_index.h"
#include "hone/model_io/tokenizer_file.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;

// Converts float8 weights to bf16, which represents every value of both formats.
Buffer widen_float8(const SafetensorsTensor& tensor) {
  const auto count = static_cast<Index>(tensor.bytes.size());
  Buffer out(count * 2);
  StoredMatrix source;
  source.rows = count;
  source.cols = 1;
  source.dtype = tensor.dtype;
  source.bytes = tensor.bytes;
  for (Index i = 0; i < count; ++i) {
    float value = 0;
    decode_row(source, i, {&value, 1});
    out.as<std::uint16_t>()[i] = float_to_bf16(value);
  }
  return out;
}

NamedMatrix to_matrix(LoadedModel& model, SafetensorsTensor& tensor, const std::string& where) {
  const int rank = tensor.shape.rank();
  if (rank != 1 && rank != 2)
    fail_corrupt(where, concat("a vector or a matrix for ", quote_name(tensor.name)),
                 to_text(tensor.shape));
  NamedMatrix out;
  out.is_vector = rank == 1;
  out.matrix.rows = out.is_vector ? 1 : tensor.shape[0];
  out.matrix.cols = tensor.shape[rank - 1];
  out.matrix.dtype = tensor.dtype;
  out.matrix.bytes = tensor.bytes;
  if (tensor.dtype == Dtype::Float8E4M3 || tensor.dtype == Dtype::Float8E5M2) {
    out.matrix.bytes = model.owned.emplace_back(widen_float8(tensor)).span();
    out.matrix.dtype = Dtype::BFloat16;
  }
  out.name = std::move(tensor.name);
  return out;
}

SafetensorsFile map_weights(LoadedModel& model, const fs::path& path) {
  MmapFile& file = model.mappings.emplace_back(path);
  model.bytes += static_cast<Index>(file.bytes().size());
  return parse_safetensors(file.bytes(), path.string());
}

void add_tensors(LoadedModel& model, SafetensorsFile& file, const std::string& where) {
  for (SafetensorsTensor& tensor : file.tensors) {
    if (!is_ignorable(tensor.name, model.arch))
      model.matrices.push_back(to_matrix(model, tensor, where));
  }
}

void add_shards(LoadedModel& model, const fs::path& folder,
                const std::map<std::string, std::string>& weight_map) {
  std::size_t found = 0;
  for (const std::string& shard : shards_of(weight_map)) {
    const std::string where = (folder / shard).string();
    SafetensorsFile file = map_weights(model, folder / shard);
    for (const SafetensorsTensor& tensor : file.tensors) {
      const auto at = weight_map.find(tensor.name);
      if (at == weight_map.end() || at->second != shard)
        fail_corrupt(where, concat("This shard has ", quote_name(tensor.name), ", which ",
                                   kShardIndexFile, " does not list here."));
      ++found;
    }
    add_tensors(model, file, where);
  }
  if (found != weight_map.size())
    fail_corrupt((folder / kShardIndexFile).string(),
                 concat(weight_map.size(), " tensors in the shards"), concat(found));
}

void add_weights(LoadedModel& model, const fs::path& folder) {
  const auto weight_map = read_shard_index(folder);
  if (!weight_map.empty()) return add_shards(model, folder, weight_map);
  const fs::path path = folder / kWeightsFile;
  if (!fs::exists(path) && fs::exists(folder / "pytorch_model.bin"))
    fail_unsupported(folder.string(),
                     "pytorch_model.bin is not supported, because opening a pickle can run code. "
                     "The weights must be in model.safetensors.");
  SafetensorsFile file = map_weights(model, path);
  if (file.find_metadata(kManifestKey) != nullptr) {
    model.model_format = ModelFormat::HoneArtifact;
    extract_quantized(file, model.matrices, model.owned, path.string());
  } else if (file.find_metadata(kFormatKey) != nullptr) {
    fail_corrupt(path.string(), concat("There is no metadata ", kManifestKey, "."));
  }
  add_tensors(model, file, path.string());
}

// The artifact has hone's names already.
void bind_weights(LoadedModel& model, const std::string& where) {
  if (model.model_format == ModelFormat::HuggingFace)
    bind_tensors(model, FileFormat::HuggingFace, where);
}

Json read_generation_config(const fs::path& folder) {
  const fs::path path = folder / "generation_config.json";
  if (!fs::exists(path)) return Json::object();
  Json json = read_json_file(path);
  if (!json.is_object()) fail_corrupt(path.string(), "a JSON object", json.type_name());
  return json;
}

}  // namespace

std::unique_ptr<LoadedModel> open_hugging_face(const fs::path& path, const OpenOptions& options) {
  const fs::path config = path / "config.json";
  if (!fs::exists(config))
    fail(ErrorCategory::NotFound, path.string(),
         fs::exists(path / "model" / "config.json")
             ? "This is the folder of a run, whose model is in its folder model/."
             : "This folder has no config.json, so it is not a model.");
  auto model = std::make_unique<LoadedModel>();
  model->generation = read_generation_config(path);
  const Json json = read_json_file(config);
  model->arch = read_hf_config(json, model->generation, config.string());
  validate(model->arch, config.string());
  add_weights(*model, path);
  bind_weights(*model, path.string());
  model->vocabulary =
      load_model_tokenizer(options, path.string(), [&] { return find_tokenizer(path); });
  model->about = read_hf_metadata(path, json);
  take_tokenizer_metadata(options.tokenizer, model->about);
  model->finish(path.string());
  return model;
}

}  // namespace hone::model_io

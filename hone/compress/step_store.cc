// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/step_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/file/sha256.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/log.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::compress {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKeyFile = "hone-compress-run";
constexpr const char* kAboutKey = "step";
constexpr const char* kHashSuffix = ".sha256";

// Whether a file is one that a StepStore writes.
bool is_own(const fs::path& file) {
  const std::string name = file.filename().string();
  return name == kKeyFile || name == FolderLock::kName || name == "calibration.json" ||
         name == "allocation.json" || name.starts_with("pass");
}

// The buffers that a stored matrix consists of.
std::array<std::pair<std::string_view, std::span<const std::byte>>, 4> parts_of(
    const StoredMatrix& matrix) {
  return {{{".bytes", matrix.bytes},
           {".codes", matrix.quant.codes},
           {".scales", matrix.quant.scales},
           {".zeros", matrix.quant.zeros}}};
}

Json describe(const Model& model, Index at) {
  const model_io::NamedMatrix& tensor = model.tensors()[static_cast<std::size_t>(at)];
  return {{"rounded", model.is_rounded(at)},
          {"type", type_text(tensor.matrix)},
          {"rows", tensor.matrix.rows},
          {"cols", tensor.matrix.cols},
          {"act_int8", tensor.matrix.act_int8}};
}

Json widths_of(const model_io::Architecture& a, Index layer) {
  Json factored = Json::array();
  for (const model_io::FactoredLayer& one : a.factored) {
    if (model_io::layer_of(one.name) == layer) factored.push_back({one.name, one.rank});
  }
  return {{"heads", a.heads_of(layer)},
          {"intermediate", a.intermediate_of(layer)},
          {"factored", std::move(factored)}};
}

void restore_widths(const Json& widths, Index layer, Model& model) {
  model.set_widths(layer, widths.at("heads"), widths.at("intermediate"));
  for (const Json& one : widths.at("factored")) {
    const std::string name = one.at(0);
    const auto& known = model.architecture().factored;
    if (std::ranges::find(known, name, &model_io::FactoredLayer::name) == known.end())
      model.add_factored(
          {.name = name, .mode = model_io::FactoredLayer::Mode::Projected, .rank = one.at(1)});
  }
}

Buffer copy_of(std::span<const std::byte> bytes) {
  Buffer out(static_cast<Index>(bytes.size()));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

EncodedMatrix read_matrix(const SafetensorsFile& file, const std::string& name, const Json& about) {
  const auto find = [&](std::string_view part) {
    const auto at = std::ranges::find(file.tensors, concat(name, part), &SafetensorsTensor::name);
    return copy_of(at == file.tensors.end() ? std::span<const std::byte>() : at->bytes);
  };
  EncodedMatrix out;
  StoredMatrix& stored = out.stored;
  const std::string type = about.at("type");
  out.is_rounded = about.at("rounded");
  stored.rows = about.at("rows");
  stored.cols = about.at("cols");
  stored.act_int8 = about.at("act_int8");
  if (Buffer bytes = find(".bytes"); bytes.bytes() > 0) {
    out.codes = std::move(bytes);
    stored.bytes = out.codes.span();
    const auto block = find_block_type(type);
    stored.layout = block ? WeightLayout::GgufBlocks : WeightLayout::Dense;
    if (block) stored.block_type = *block;
    if (!block) stored.dtype = find_dense_type(type).value_or(Dtype::Float32);
    return out;
  }
  out.codes = find(".codes");
  out.scales = find(".scales");
  out.zeros = find(".zeros");
  stored.layout = WeightLayout::Canonical;
  stored.quant = {parse_quant_spec(type), stored.rows,       stored.cols,
                  out.codes.span(),       out.scales.span(), out.zeros.span()};
  check_quant_matrix(stored.quant);
  return out;
}

}  // namespace

StepStore::StepStore(fs::path folder, const std::string& key)
    : folder_(std::move(folder)), lock_(std::in_place, folder_) {
  remove_stale_temporaries(folder_);
  for (const auto& entry : fs::directory_iterator(folder_))
    HONE_REQUIRE(is_own(entry.path()), folder_.string(),
                 "This is where an interrupted run is kept, but it holds something else.");
  const fs::path file = folder_ / kKeyFile;
  if (fs::exists(file) && read_text_file(file) == key) return;
  clear();
  write_text_file(file, key);
}

std::optional<std::string> StepStore::text(const std::string& name) const {
  const fs::path file = folder_ / name;
  if (!fs::exists(file)) return std::nullopt;
  return read_text_file(file);
}

void StepStore::save_text(const std::string& name, const std::string& text) const {
  write_text_file(folder_ / name, text);
}

fs::path StepStore::path_of(const std::string& step) const {
  return folder_ / concat(step, ".safetensors");
}

std::optional<Json> StepStore::restore(const std::string& step, Model& model) const {
  const fs::path path = path_of(step);
  const auto hash = text(step + kHashSuffix);
  if (!fs::exists(path) || !hash) return std::nullopt;
  const MmapFile mapping(path);
  if (sha256_hex(mapping.bytes()) != *hash) {
    log_warning(concat(path.string(), " is damaged; this step is made again"));
    return std::nullopt;
  }
  const SafetensorsFile file = parse_safetensors(mapping.bytes(), path.string());
  const std::string* const about_text = file.find_metadata(kAboutKey);
  if (about_text == nullptr) fail_corrupt(path.string(), "This is not a step of a run.");
  const Json about = parse_json(*about_text, path.string());
  try {
    for (const auto& [name, one] : about.at("tensors").items()) {
      EncodedMatrix matrix = read_matrix(file, name, one);
      const bool act_int8 = matrix.stored.act_int8;
      if (model.find(name) != nullptr) {
        model.replace(model.index_of(name), std::move(matrix), act_int8);
      } else {
        model.add(name, std::move(matrix), act_int8);
      }
    }
    if (about.at("layer") >= 0) restore_widths(about.at("widths"), about.at("layer"), model);
    return about.at("evidence");
  } catch (const Json::exception& error) {
    fail_corrupt(path.string(), error.what());
  } catch (const Error& error) {  // a type or a size that no matrix has
    if (error.category() != ErrorCategory::InvalidArgument) throw;
    fail_corrupt(path.string(), error.what());
  }
}

void StepStore::save(const std::string& step, const Model& before, const Model& model, Index layer,
                     const Json& evidence) const {
  std::vector<SafetensorsWriter::Entry> plan;
  Json tensors = Json::object();
  const std::vector<Index> changed = model.changed_from(before);
  for (const Index at : changed) {
    const model_io::NamedMatrix& tensor = model.tensors()[static_cast<std::size_t>(at)];
    tensors[tensor.name] = describe(model, at);
    for (const auto& [part, bytes] : parts_of(tensor.matrix)) {
      if (!bytes.empty())
        plan.push_back(
            {concat(tensor.name, part), Dtype::UInt8, Shape{static_cast<Index>(bytes.size())}});
    }
  }
  const Json about = {{"tensors", std::move(tensors)},
                      {"layer", layer},
                      {"widths", layer < 0 ? Json() : widths_of(model.architecture(), layer)},
                      {"evidence", evidence}};
  Sha256 hash;
  SafetensorsWriter writer(path_of(step), plan, {{kAboutKey, about.dump()}}, &hash);
  for (const Index at : changed) {
    const StoredMatrix& matrix = model.tensors()[static_cast<std::size_t>(at)].matrix;
    for (const auto& [part, bytes] : parts_of(matrix)) {
      if (!bytes.empty()) writer.write(bytes);
    }
  }
  writer.commit();
  save_text(step + kHashSuffix, hash.hex());
}

// The key goes last, so that what a kill leaves is still known as a run's.
void StepStore::clear() const {
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (is_own(entry.path()) && name != kKeyFile && name != FolderLock::kName)
      fs::remove(entry.path());
  }
  fs::remove(folder_ / kKeyFile);
}

void StepStore::finish() {
  clear();
  lock_.reset();
  std::error_code ignored;
  fs::remove(folder_, ignored);
}

}  // namespace hone::compress

// SPDX-License-Identifier: Apache-2.0
#include "hone/train/load_mapped.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/machine/trace.h"
#include "hone/core/names.h"
#include "hone/model_io/shard_index.h"
#include "hone/train/interop.h"
#include "hone/train/surgery/slot.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

using torch::Tensor;

constexpr std::size_t kNamesShown = 3;

// A tensor of a mapped file.
struct FileTensor {
  SafetensorsTensor tensor;
  std::shared_ptr<MmapFile> file;
};

std::vector<fs::path> list_weight_files(const fs::path& model) {
  std::error_code ignored;
  if (!fs::is_directory(model, ignored)) return {model};
  const auto index = model_io::read_shard_index(model);
  if (index.empty()) return {model / model_io::kWeightsFile};
  std::vector<fs::path> files;
  for (const std::string& shard : model_io::shards_of(index)) files.push_back(model / shard);
  return files;
}

std::string name_list(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    out += concat(i == 0 ? "" : ", ", quote_name(names[i]));
  }
  if (names.size() > kNamesShown) out += concat(" and ", names.size() - kNamesShown, " more");
  return out;
}

std::string form_of(const Tensor& tensor) {
  return concat(c10::toString(tensor.scalar_type()), " ", c10::str(tensor.sizes()));
}

class ModuleMapper {
 public:
  explicit ModuleMapper(const fs::path& model) : model_(model.string()) {
    for (const fs::path& path : list_weight_files(model)) map(path);
  }

  void match(const torch::nn::Module& module) {
    std::vector<NamedTensor> targets = nn::parameters_by_path(module);
    for (NamedTensor& buffer : nn::buffers_by_path(module)) targets.push_back(std::move(buffer));
    std::unordered_set<const c10::TensorImpl*> found;
    for (const auto& [name, target] : targets) {
      const auto stored = stored_.find(name);
      if (stored == stored_.end()) continue;
      check_form(name, target, stored->second.tensor);
      found.insert(target.unsafeGetTensorImpl());
      matches_.push_back({target, std::move(stored->second)});
      stored_.erase(stored);
    }
    for (const auto& [name, target] : targets) {
      if (!found.contains(target.unsafeGetTensorImpl())) result_.missing.push_back(name);
    }
    for (const auto& [name, stored] : stored_) result_.unexpected.push_back(name);
  }

  void check(bool strict) const {
    if (!strict) return;
    if (!result_.missing.empty()) {
      fail_argument(model_,
                    concat("Tensors of the module are missing: ", name_list(result_.missing), "."));
    }
    if (!result_.unexpected.empty()) {
      fail_argument(model_,
                    concat("Tensors are not of the module: ", name_list(result_.unexpected), "."));
    }
  }

  MappedWeights assign() {
    for (const auto& [target, stored] : matches_) target.set_data(view(stored));
    return std::move(result_);
  }

 private:
  struct Match {
    Tensor target;
    FileTensor stored;
  };

  void map(const fs::path& path) {
    const auto file = std::make_shared<MmapFile>(path, MapAccess::CopyOnWrite);
    result_.files.push_back(file);
    for (SafetensorsTensor& tensor : parse_safetensors(file->bytes(), path.string()).tensors) {
      std::string name = tensor.name;
      const auto [at, is_new] = stored_.emplace(name, FileTensor{std::move(tensor), file});
      if (!is_new) fail_corrupt(path.string(), concat(quote_name(name), " is in two shards."));
    }
    file->check_intact();
  }

  void check_form(const std::string& name, const Tensor& target,
                  const SafetensorsTensor& stored) const {
    const auto dims = stored.shape.dims();
    const at::IntArrayRef sizes(dims.data(), dims.size());
    HONE_CHECK(target.is_cpu(), concat(model_, ": ", name), "a tensor of the CPU",
               c10::str(target.device()));
    const at::ScalarType type = scalar_type_of(stored.dtype);
    HONE_CHECK(target.sizes() == sizes && target.scalar_type() == type, model_,
               concat(form_of(target), " for ", quote_name(name)),
               concat(c10::toString(type), " ", c10::str(sizes)));
  }

  Tensor view(const FileTensor& stored) {
    const auto dims = stored.tensor.shape.dims();
    const at::IntArrayRef sizes(dims.data(), dims.size());
    const at::TensorOptions options(scalar_type_of(stored.tensor.dtype));
    const std::span<const std::byte> bytes = stored.tensor.bytes;
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    const auto element = static_cast<std::uintptr_t>(bytes_of(stored.tensor.dtype));
    if (bytes.empty() || address % element != 0) {
      const Tensor copy = at::empty(sizes, options);
      if (!bytes.empty()) std::memcpy(copy.data_ptr(), bytes.data(), bytes.size());
      ++result_.copied;
      return copy;
    }
    ++result_.mapped;
    const std::ptrdiff_t offset = bytes.data() - stored.file->bytes().data();
    std::byte* const data = stored.file->writable_bytes().data() + offset;
    return at::from_blob(
        data, sizes, [file = stored.file](void*) { static_cast<void>(file); }, options);
  }

  std::string model_;
  std::map<std::string, FileTensor> stored_;  // what no tensor of the module has taken yet
  std::vector<Match> matches_;
  MappedWeights result_;
};

}  // namespace

void MappedWeights::check_intact() const {
  for (const auto& file : files) file->check_intact();
}

MappedWeights load_mapped(torch::nn::Module& module, const fs::path& model,
                          const MapOptions& options) {
  HONE_TRACE_ZONE("map weights", {"file", model.string()});
  ModuleMapper mapper(model);
  mapper.match(module);
  mapper.check(options.strict);
  return mapper.assign();
}

}  // namespace hone

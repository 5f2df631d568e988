// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/load_weights.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/folder_lock.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/core/machine/trace.h"
#include "hone/core/names.h"
#include "hone/kernels/gemm/layout_id.h"

namespace hone::infer {
namespace {

namespace fs = std::filesystem;
using model_io::ModelFile;

constexpr auto kPatience = std::chrono::minutes(5);
constexpr std::string_view kNotKept = "; the packed weights are not kept.";

// A message that another clause follows.
std::string without_stop(std::string message) {
  if (message.ends_with('.')) message.pop_back();
  return message;
}

constexpr auto kPause = std::chrono::milliseconds(20);

PackedOrigin origin_of(const ModelFile& file, WeightFormat format) {
  std::error_code ignored;
  const LoadType type = load_type_of(format);
  return {.identity = file.identity(),
          .layout = kernels::packed_layout_id(),
          .weights = std::string(type ? model_io::name_of(*type) : "file"),
          .model = escape_controls(fs::weakly_canonical(file.files().front(), ignored).string())};
}

// The part of a path that people recognize, without what shells and file systems object to.
std::string plain_name(const fs::path& model) {
  std::string name = concat(model.parent_path().filename().string(), "-", model.stem().string());
  for (char& c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (!is_plain) c = '_';
  }
  return name.substr(0, 60);
}

// One folder for each place of a model, way of quantizing and layout, so that a model that is
// replaced also replaces its packed weights.
fs::path entry_folder(const fs::path& cache, const PackedOrigin& origin) {
  const std::string key = concat(origin.model, "\n", origin.weights, "\n", origin.layout);
  return cache / concat(plain_name(origin.model), "-", origin.weights, "-",
                        sha256_hex_of_text(key).substr(0, 16));
}

ModelWeights pack_in_memory(const ModelFile& file, WeightFormat format, Executor& executor,
                            std::vector<PackedEntry>* entries = nullptr) {
  WeightPacker packer(file, format, executor);
  ModelWeights weights = pack_weights(file, packer, executor);
  file.check_intact();
  if (entries != nullptr) entries->assign(packer.entries().begin(), packer.entries().end());
  return weights;
}

// The cache of one model.
class PackCache {
 public:
  PackCache(const ModelFile& file, const WeightOptions& options, Executor& executor)
      : file_(file),
        format_(options.format),
        executor_(executor),
        origin_(origin_of(file, options.format)),
        folder_(entry_folder(options.pack_cache, origin_)),
        path_(folder_ / "packed.safetensors") {}

  ModelWeights load() const {
    if (auto weights = try_map(true)) return *std::move(weights);
    const std::unique_ptr<FolderLock> lock = wait_for_lock();
    if (lock != nullptr) {  // whoever had it may have written the file
      if (auto weights = try_map(false)) return *std::move(weights);
    }
    std::vector<PackedEntry> entries;
    ModelWeights weights = pack_in_memory(file_, format_, executor_, &entries);
    if (lock == nullptr) return weights;
    try {
      remove_stale_temporaries(folder_);
      // Writing through a link would overwrite a file outside the cache.
      std::error_code error;
      if (fs::is_symlink(path_, error) && !fs::remove(path_, error)) {
        fail(ErrorCategory::Io, path_.string(), "a file", "a link that cannot be removed");
      }
      write_packed_file(path_, origin_, entries, executor_);
      return map(false);  // touches no panel before `weights` has gone
    } catch (const Error& error) {
      log_warning(concat(without_stop(error.what()), kNotKept));
      return weights;
    }
  }

 private:
  // Nothing if there is no file, or none that is good.
  std::optional<ModelWeights> try_map(bool warn) const {
    std::error_code ignored;
    if (!fs::exists(path_, ignored)) return std::nullopt;
    try {
      return map(true);
    } catch (const Error& error) {
      if (warn) log_warning(concat(without_stop(error.what()), "; the weights are packed again."));
      return std::nullopt;
    }
  }

  // Views the panels of the file. Only one that was just written need not be verified.
  ModelWeights map(bool verify) const {
    HONE_TRACE_ZONE("map packed weights", {"file", path_.string()});
    auto packed = std::make_shared<const PackedFile>(path_, origin_);
    if (verify) packed->verify(executor_);
    WeightPacker packer(file_, format_, executor_, packed.get());
    ModelWeights weights = pack_weights(file_, packer, executor_);
    weights.packed = std::move(packed);
    file_.check_intact();
    return weights;
  }

  // Null if the cache cannot be used.
  std::unique_ptr<FolderLock> wait_for_lock() const {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (bool is_first = true;; is_first = false) {
      try {
        return std::make_unique<FolderLock>(folder_);
      } catch (const Error& error) {
        if (error.category() != ErrorCategory::Resource || std::chrono::steady_clock::now() > end) {
          log_warning(concat(error.what(), kNotKept));
          return nullptr;
        }
        if (is_first) log_info(concat("waiting for another process, which packs ", origin_.model));
      }
      std::this_thread::sleep_for(kPause);
    }
  }

  const ModelFile& file_;
  WeightFormat format_;
  Executor& executor_;
  PackedOrigin origin_;
  fs::path folder_, path_;
};

}  // namespace

ModelWeights load_weights(const ModelFile& file, const WeightOptions& options, Executor& executor) {
  if (options.pack_cache.empty()) return pack_in_memory(file, options.format, executor);
  return PackCache(file, options, executor).load();
}

}  // namespace hone::infer

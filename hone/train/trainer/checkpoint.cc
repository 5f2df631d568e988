// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/core/progress.h"
#include "hone/core/text_format.h"

namespace hone::trainer {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;
constexpr std::string_view kPrefix = "step_", kRemoved = ".removed_";
constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kState = "state.safetensors";
constexpr const char* kManifest = "manifest.json";

constexpr Index kMegabyte = 1'000'000;

Json describe(std::span<const std::byte> bytes) {
  return {{"bytes", bytes.size()}, {"sha256", sha256_hex(bytes)}};
}

// Writes the tensors and returns their file's entry in the manifest.
Json write_hashed(const fs::path& path, const std::vector<CheckpointTensor>& tensors,
                  const std::function<void(Index bytes)>& written) {
  Sha256 hash;
  write_tensors(path, tensors, {}, written, &hash);
  return {{"bytes", fs::file_size(path)}, {"sha256", hash.hex()}};
}

std::vector<CheckpointTensor> read_verified(const fs::path& folder, const char* name,
                                            const Json& manifest) {
  const MmapFile file(folder / name);
  const Json& entry = manifest.at("files").at(name);
  if (const Json found = describe(file.bytes()); entry != found) {
    fail_corrupt(file.path().string(), entry.dump(), found.dump());
  }
  return read_tensors(file);
}

// read(manifest) of a checkpoint's checked manifest; Error{CorruptFile} names the file.
template <class Read>
auto with_manifest(const fs::path& path, Index step, const Read& read) {
  const Json manifest = read_json_file(path);
  try {
    if (manifest.at("format") != kFormat || manifest.at("step") != step) {
      fail_corrupt(path.string(), concat("format ", kFormat, " and step ", step),
                   concat(manifest.at("format").dump(), " and ", manifest.at("step").dump()));
    }
    if (manifest.at("facts_sha256") != sha256_hex_of_text(manifest.at("facts").dump())) {
      fail_corrupt(path.string(), "The facts do not have the recorded SHA-256.");
    }
    return read(manifest);
  } catch (const Json::exception&) {
    fail_corrupt(path.string(),
                 "A field of a checkpoint's manifest is missing or has another type.");
  }
}

std::optional<Index> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  Index step = -1;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end || step < 0) return std::nullopt;
  return step;
}

}  // namespace

Index bytes_of(const std::vector<CheckpointTensor>& tensors) {
  Index bytes = 0;
  for (const CheckpointTensor& tensor : tensors) bytes += static_cast<Index>(tensor.value.nbytes());
  return bytes;
}

CheckpointStore::CheckpointStore(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    fail(ErrorCategory::Io, folder_.string(),
         concat("The folder cannot be created: ", error.message()));
  }
  remove_stale_temporaries(folder_);
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().filename().string().starts_with(kRemoved)) {
      std::error_code ignored;  // only disk space is lost
      fs::remove_all(entry.path(), ignored);
    }
  }
}

fs::path CheckpointStore::path_of(Index step) const {
  std::array<char, 32> digits;
  std::snprintf(digits.data(), digits.size(), "%08lld", static_cast<long long>(step));
  return folder_ / concat(kPrefix, digits.data());
}

std::vector<Index> CheckpointStore::steps() const {
  std::vector<Index> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (const auto step = step_of(entry.path())) found.push_back(*step);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void CheckpointStore::save(const Checkpoint& checkpoint, Index keep, std::optional<Index> best) {
  AtomicFolder folder(path_of(checkpoint.step));
  Progress progress(concat("save step ", checkpoint.step),
                    (bytes_of(checkpoint.weights) + bytes_of(checkpoint.state)) / kMegabyte, "MB");
  Index bytes = 0;
  const auto written = [&](Index more) { progress.update((bytes += more) / kMegabyte); };
  const Json weights = write_hashed(folder.staging() / kWeights, checkpoint.weights, written);
  const Json state = write_hashed(folder.staging() / kState, checkpoint.state, written);
  const Json manifest = {{"format", kFormat},
                         {"step", checkpoint.step},
                         {"facts", checkpoint.facts},
                         {"facts_sha256", sha256_hex_of_text(checkpoint.facts.dump())},
                         {"files", {{kWeights, weights}, {kState, state}}}};
  write_json_file(folder.staging() / kManifest, manifest);
  folder.commit();
  const std::vector<Index> all = steps();
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    if (all[i] != best) remove(all[i]);
  }
}

// Renames the folder first, so that a kill halfway leaves nothing that looks like a damaged
// checkpoint.
void CheckpointStore::remove(Index step) const {
  const fs::path from = path_of(step), to = folder_ / concat(kRemoved, step);
  std::error_code error;
  fs::rename(from, to, error);
  fs::remove_all(error ? from : to, error);
}

void CheckpointStore::check_disk(Index bytes, Index keep) const {
  std::error_code unknown;
  const fs::space_info disk = fs::space(folder_, unknown);
  if (unknown) return;
  trainer::check_disk(folder_, static_cast<Index>(disk.available), bytes, keep,
                      std::ssize(steps()));
}

void check_disk(const fs::path& folder, Index free, Index bytes, Index keep, Index stored) {
  if (bytes > free) {
    fail(ErrorCategory::Resource, folder.string(),
         concat(format_bytes(bytes), " of free disk space for a checkpoint"), format_bytes(free));
  }
  const Index more = std::max<Index>(0, keep + 1 - stored) * bytes;
  if (more <= free) return;
  log_warning(concat(folder.string(), " may run out of disk space: a checkpoint takes ",
                     format_bytes(bytes), ", up to ", keep + 1,
                     " are there at a time "
                     "(trainer.keep_checkpoints), and ",
                     format_bytes(free), " are free"));
}

void CheckpointStore::clear() const {
  for (const Index step : steps()) remove(step);
}

Checkpoint CheckpointStore::load(Index step) const {
  const fs::path folder = path_of(step);
  return with_manifest(folder / kManifest, step, [&](const Json& manifest) {
    return Checkpoint{.step = step,
                      .facts = manifest.at("facts"),
                      .weights = read_verified(folder, kWeights, manifest),
                      .state = read_verified(folder, kState, manifest)};
  });
}

template <class Read>
auto CheckpointStore::read_newest(const Read& read) const
    -> std::optional<decltype(read(Index{}))> {
  std::vector<Index> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    try {
      return read(*step);
    } catch (const Error& error) {
      log_warning(
          concat("skipping the damaged checkpoint ", path_of(*step).string(), ": ", error.what()));
    }
  }
  if (!all.empty()) {
    fail_corrupt(folder_.string(),
                 concat("All checkpoints are damaged (", all.size(), "); --fresh starts again."));
  }
  return std::nullopt;
}

std::optional<Checkpoint> CheckpointStore::load_newest() const {
  return read_newest([&](Index step) { return load(step); });
}

std::optional<Json> CheckpointStore::newest_facts() const {
  return read_newest([&](Index step) {
    return with_manifest(path_of(step) / kManifest, step,
                         [](const Json& manifest) { return manifest.at("facts"); });
  });
}

}  // namespace hone::trainer

// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/load_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/names.h"
#include "hone/train/surgery/slot.h"

namespace hone::nn {
namespace {

namespace fs = std::filesystem;

using torch::Tensor;

constexpr std::string_view kWrapper = "module.", kFile = "model.safetensors";
constexpr std::array<std::string_view, 2> kClassifiers = {"fc.", "linear."};
constexpr std::size_t kNamesShown = 2;

std::string shape_text(const Tensor& tensor) {
  std::string out = "[";
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    out += concat(i == 0 ? "" : ", ", tensor.size(i));
  }
  return out + "]";
}

bool is_classifier(std::string_view name) {
  return std::ranges::any_of(kClassifiers,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// A count of batches affects no result. With other signs than those of the file, its weights mean
// nothing.
bool may_be_missing(std::string_view name, bool has_recipes) {
  const bool is_recipe = name == "sketch" || name.ends_with(".sketch");
  return name.ends_with("num_batches_tracked") || (is_recipe && has_recipes);
}

// Begins as torch.save's zip archives or its older pickles do.
bool is_torch_save(std::span<const std::byte> bytes) {
  constexpr std::string_view kZip = "PK\x03\x04", kPickle = "\x80\x02\x8a\x0a";
  const auto begins = [&](std::string_view magic) {
    return bytes.size() >= magic.size() &&
           std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  return begins(kZip) || begins(kPickle);
}

std::vector<NamedTensor> read_file(const fs::path& path) {
  const MmapFile file(path);
  if (is_torch_save(file.bytes())) {
    fail_unsupported(
        path.string(),
        "This is a file of torch.save; hone's tools/pth_to_safetensors.py converts it, "
        "as safetensors.torch.save_file does in Python.");
  }
  return read_tensors(file);
}

std::map<std::string, Tensor> by_name(std::vector<NamedTensor> tensors, const std::string& where) {
  std::map<std::string, Tensor> out;
  for (NamedTensor& stored : tensors) {
    if (stored.name.starts_with(kWrapper)) stored.name.erase(0, kWrapper.size());
    const auto [entry, is_new] = out.emplace(std::move(stored.name), std::move(stored.value));
    if (!is_new) {
      fail_corrupt(where, concat("one tensor ", quote_name(entry->first)), "two");
    }
  }
  return out;
}

// Sorts a module's tensors into those that the file has and those that do not fit.
class Matcher {
 public:
  Matcher(std::vector<NamedTensor> stored, const std::string& where, const LoadOptions& options)
      : path_(where), options_(options), stored_(by_name(std::move(stored), where)) {}

  void match(const torch::nn::Module& module) {
    for (const auto& [name, target] : parameters_by_path(module)) take(name, target);
    if (result_.classifier.empty()) {
      result_.tensors += static_cast<Index>(head_.size());
      std::ranges::move(head_, std::back_inserter(copies_));
    }
    for (const Copy& copy : copies_) result_.parameters.push_back(copy.name);
    for (const auto& [name, target] : buffers_by_path(module)) take(name, target);
    for (const auto& [name, tensor] : stored_) {
      (is_classifier(name) ? result_.classifier : result_.unexpected)
          .push_back(concat(quote_name(name), " ", shape_text(tensor)));
    }
  }
  void check() const {
    const bool fits = !result_.parameters.empty();
    if (fits && (!options_.strict || result_.is_complete())) return;
    fail_argument(path_,
                  concat(fits ? "Not every tensor fits the model: " : "No tensor fits the model: ",
                         result_.mismatches(), "."));
  }
  LoadedWeights copy() {
    const at::NoGradGuard no_grad;
    for (const Copy& copy : copies_) copy.target.copy_(copy.value);
    return std::move(result_);
  }

 private:
  struct Copy {
    std::string name;
    Tensor target, value;
  };

  void take(const std::string& name, const Tensor& target) {
    const bool in_head = is_classifier(name);
    const auto found = stored_.find(name);
    if (found == stored_.end()) {
      if (!may_be_missing(name, options_.has_recipes)) {
        (in_head ? result_.classifier : result_.missing).push_back(name);
      }
      return;
    }
    const Tensor stored = std::move(found->second);
    stored_.erase(found);
    if (stored.sizes() != target.sizes() ||
        stored.is_floating_point() != target.is_floating_point()) {
      const char* const kind = stored.sizes() != target.sizes() ? ""
                               : stored.is_floating_point()     ? " of floating-point numbers"
                                                                : " of integers";
      (in_head ? result_.classifier : result_.misshaped)
          .push_back(
              concat(name, " ", shape_text(stored), kind, " (model: ", shape_text(target), ")"));
      return;
    }
    const Tensor value = stored.to(target.scalar_type());
    check_values(value, name, path_);
    (in_head ? head_ : copies_).push_back({name, target, value});
    if (!in_head) ++result_.tensors;
  }

  std::string path_;
  LoadOptions options_;
  std::map<std::string, Tensor> stored_;  // what no tensor of the module has taken yet
  std::vector<Copy> copies_, head_;
  LoadedWeights result_;
};

void append_names(std::string& out, std::string_view title, const std::vector<std::string>& names) {
  if (names.empty()) return;
  out += concat(out.empty() ? "" : "; ", title, ": ");
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    out += concat(i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kNamesShown) out += concat(" and ", names.size() - kNamesShown, " more");
}

}  // namespace

bool LoadedWeights::is_complete() const {
  return missing.empty() && unexpected.empty() && misshaped.empty() && classifier.empty();
}

std::string LoadedWeights::mismatches() const {
  std::string out;
  append_names(out, "missing", missing);
  append_names(out, "unexpected", unexpected);
  append_names(out, "of another shape", misshaped);
  append_names(out, "classifier not loaded", classifier);
  return out;
}

LoadedWeights load_weights(torch::nn::Module& module, const fs::path& file,
                           const LoadOptions& options) {
  return load_weights(module, read_file(file), file.string(), options);
}

LoadedWeights load_weights(torch::nn::Module& module, std::vector<NamedTensor> stored,
                           const std::string& where, const LoadOptions& options) {
  Matcher matcher(std::move(stored), where, options);
  matcher.match(module);
  matcher.check();
  return matcher.copy();
}

fs::path weights_file_of(const fs::path& model) {
  std::error_code ignored;
  if (!fs::is_directory(model, ignored)) return model;
  for (const fs::path& file : {model / kFile, model / "model" / kFile}) {
    if (fs::exists(file, ignored)) return file;
  }
  fail(ErrorCategory::NotFound, model.string(),
       "a safetensors file, or the folder of a model or of a finished run", "another folder");
}

void check_values(const Tensor& value, std::string_view name, const std::string& file) {
  if (!at::isfinite(value).all().item<bool>()) {
    fail_corrupt(file, concat("finite values in ", name), "NaN or infinity");
  }
  if (name.ends_with("running_var") && value.lt(0).any().item<bool>()) {
    fail_corrupt(file, concat("variances of at least 0 in ", name),
                 concat(value.min().item<double>()));
  }
}

}  // namespace hone::nn

// SPDX-License-Identifier: Apache-2.0
#include "hone/train/loss/top_k.h"

#include <ATen/ATen.h>

#include <charconv>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/train/tensor_file.h"

namespace hone::loss {
namespace {

using torch::Tensor;

constexpr std::string_view kTopK = "top k";
constexpr const char *kClasses = "classes", *kLogProbs = "log_probs";
constexpr const char *kTemperature = "hone.temperature", *kOf = "hone.classes";
constexpr double kRounding = 1e-4;  // of a sum of probabilities in f32

double read_number(const SafetensorsFile& file, const char* key, const std::string& where) {
  const std::string* const text = file.find_metadata(key);
  double value = 0;
  if (text != nullptr) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error == std::errc() && end == text->data() + text->size()) return value;
  }
  fail_corrupt(where, concat("a number as ", key), text == nullptr ? "none" : *text);
}

// Distributions that fit each other.
void check_rows(const TopK& top, const std::string& where) {
  const auto want = [&](bool holds, std::string_view expected) {
    if (!holds) fail_corrupt(where, concat("top classes of a teacher: ", expected));
  };
  want(top.classes.dim() == 2 && top.classes.scalar_type() == at::kInt, "int32 classes [rows, k]");
  want(top.log_probs.sizes() == top.classes.sizes() && top.log_probs.scalar_type() == at::kFloat,
       "f32 log_probs of the same shape");
  want(top.temperature > 0 && top.temperature <= 1e6, "a temperature above 0");
  want(top.of > top.classes.size(1) && top.of <= std::numeric_limits<std::int32_t>::max() &&
           top.classes.size(1) >= 1,
       "k of at least 1, below the number of classes");
  if (top.classes.numel() == 0) return;
  want(top.classes.ge(0).logical_and(top.classes.lt(top.of)).all().item<bool>(),
       "classes in range");
  const Tensor sorted = std::get<0>(top.classes.sort(1));
  if (sorted.size(1) > 1) {
    want(sorted.diff(1, 1).gt(0).all().item<bool>(), "no class twice in a row");
  }
  want(at::isfinite(top.log_probs).all().item<bool>(), "finite numbers");
  const Tensor sums = top.log_probs.to(at::kDouble).exp().sum(1);
  want(sums.le(1 + kRounding).all().item<bool>(), "probabilities whose sum is at most 1");
}

// log(1 − Σ exp(x)) of each row, far enough below 0 where nothing is left.
Tensor log_rest(const Tensor& log_probs) {
  return at::log1p(-log_probs.exp().sum(1).clamp_max(1)).clamp_min(-80);
}

}  // namespace

TopK TopK::rows(Index first, Index count) const {
  return {classes.narrow(0, first, count), log_probs.narrow(0, first, count), temperature, of};
}

TopK top_k_of(const Tensor& logits, Index k, double temperature) {
  HONE_CHECK(logits.dim() == 2 && logits.is_floating_point(), kTopK, "logits [rows, classes]",
             c10::str(logits.sizes()));
  HONE_CHECK(k >= 1 && k < logits.size(1), kTopK, concat("k of 1 to ", logits.size(1) - 1), k);
  check_options({.temperature = temperature});
  const at::NoGradGuard no_grad;
  const Tensor log_probs = at::log_softmax(logits.to(at::kDouble) / temperature, 1);
  const auto [values, classes] = log_probs.topk(k, 1);
  return {classes.to(at::kInt), values.to(at::kFloat), temperature, logits.size(1)};
}

DistillationSums top_k_distillation_sums(const Tensor& student, const TopK& teacher,
                                         const Tensor& targets,
                                         const DistillationOptions& options) {
  HONE_CHECK(student.dim() == 2 && student.size(1) == teacher.of &&
                 student.size(0) == teacher.classes.size(0),
             kTopK, concat("logits [", teacher.classes.size(0), ", ", teacher.of, "]"),
             c10::str(student.sizes()));
  DistillationOptions hard = options;
  hard.alpha = 0;
  DistillationSums out{.rows = student.size(0)};
  if (targets.defined()) out = distillation_sums(student, Tensor(), targets, hard);
  check_options(options);
  if (options.alpha == 0 && targets.defined()) return out;
  const bool is_double = student.scalar_type() == at::kDouble;
  const double temperature = teacher.temperature;
  const Tensor logits = (is_double ? student : student.to(at::kFloat)) / temperature;
  const Tensor classes = teacher.classes.to(logits.device(), at::kLong);
  const Tensor wanted = teacher.log_probs.to(logits.device(), logits.scalar_type());
  const Tensor total = at::logsumexp(logits, 1);
  const Tensor got = logits.gather(1, classes) - total.unsqueeze(1);
  const Tensor others = logits.scatter(1, classes, -std::numeric_limits<double>::infinity());
  const Tensor got_rest = at::logsumexp(others, 1) - total, wanted_rest = log_rest(wanted);
  const Tensor rows =
      (wanted.exp() * (wanted - got)).sum(1) + wanted_rest.exp() * (wanted_rest - got_rest);
  const Tensor counted = targets.defined() ? rows.masked_fill(targets.lt(0), 0).sum() : rows.sum();
  out.soft = counted * (temperature * temperature);
  out.total =
      targets.defined() ? options.alpha * out.soft + (1 - options.alpha) * out.hard : out.soft;
  return out;
}

void write_top_k(const std::filesystem::path& path, const TopK& top) {
  check_rows(top, path.string());
  write_tensors(path, {{kClasses, top.classes}, {kLogProbs, top.log_probs}},
                {{kTemperature, concat(top.temperature)}, {kOf, concat(top.of)}});
}

TopK read_top_k(const std::filesystem::path& path) {
  const MmapFile mapped(path);
  const std::string where = path.string();
  const SafetensorsFile file = parse_safetensors(mapped.bytes(), where);
  std::map<std::string, Tensor> tensors;
  for (NamedTensor& tensor : copy_tensors(file)) {
    tensors.emplace(std::move(tensor.name), std::move(tensor.value));
  }
  if (tensors.size() != 2 || !tensors.contains(kClasses) || !tensors.contains(kLogProbs)) {
    fail_corrupt(where, "the tensors classes and log_probs", "others");
  }
  const double of = read_number(file, kOf, where);
  if (!(of >= 1 && of <= std::numeric_limits<std::int32_t>::max())) {
    fail_corrupt(where, "a number of classes", concat(of));
  }
  TopK out{tensors[kClasses], tensors[kLogProbs], read_number(file, kTemperature, where),
           static_cast<Index>(of)};
  check_rows(out, where);
  mapped.check_intact();
  return out;
}

}  // namespace hone::loss

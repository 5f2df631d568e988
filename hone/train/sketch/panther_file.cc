// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/panther_file.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"

namespace hone::nn {
namespace {

using torch::Tensor;

// The largest error of the size of a sign, relative to 1/√k: bf16 has 8 bits.
constexpr double kSignTolerance = 1e-2;

// The tensors of one layer in a file.
class PantherLayer {
 public:
  PantherLayer(const std::filesystem::path& file, std::string_view prefix)
      : file_(file.string()), prefix_(prefix) {
    tensors_ = read_tensors(MmapFile(file));
  }

  // Undefined if the file lacks it.
  Tensor find(const char* name) const {
    for (const NamedTensor& stored : tensors_) {
      if (stored.name == prefix_ + name) return stored.value;
    }
    return {};
  }
  Tensor take(const char* name, at::IntArrayRef sizes) const {
    const Tensor tensor = find(name);
    check(name, tensor, tensor.defined() && tensor.sizes() == sizes, c10::str(sizes));
    return tensor;
  }
  Tensor take_any(const char* name, Index dims) const {
    const Tensor tensor = find(name);
    check(name, tensor, tensor.defined() && tensor.dim() == dims && tensor.numel() > 0,
          concat(dims, " dimensions"));
    return tensor;
  }
  // Undefined if the file lacks it.
  Tensor take_bias(Index outputs) const {
    return find("bias").defined() ? take("bias", {outputs}) : Tensor();
  }
  Tensor take_signs(const char* name, at::IntArrayRef sizes, Index low_rank) const {
    const Tensor signs = take(name, sizes);
    const double size = 1 / std::sqrt(static_cast<double>(low_rank));
    const double error = (signs.to(at::kDouble).abs() / size - 1).abs().max().item<double>();
    if (error > kSignTolerance) {
      fail_corrupt(file_, concat("entries ±1/sqrt(", low_rank, ") in ", prefix_, name),
                   concat("others, off by ", 100 * error, " %"));
    }
    return signs;
  }

 private:
  void check(const char* name, const Tensor& tensor, bool fits, const std::string& wanted) const {
    if (!fits) {
      fail_corrupt(file_, concat("a tensor ", prefix_, name, " of ", wanted),
                   tensor.defined() ? c10::str(tensor.sizes()) : "none");
    }
    if (!tensor.is_floating_point() || !at::isfinite(tensor).all().item<bool>()) {
      fail_corrupt(file_, concat("finite floating-point numbers in ", prefix_, name), "others");
    }
  }

  std::string file_, prefix_;
  std::vector<NamedTensor> tensors_;
};

// [terms, n, low_rank] as rows [terms * low_rank, n], and back.
Tensor rows_of_terms(const Tensor& by_term) {
  return by_term.transpose(1, 2).reshape({-1, by_term.size(1)});
}
Tensor terms_of_rows(const Tensor& rows, Index terms) {
  return rows.view({terms, -1, rows.size(1)}).transpose(1, 2).contiguous();
}

void add_bias_to(std::vector<NamedTensor>& out, const Tensor& bias, const std::string& prefix) {
  if (bias.defined()) out.push_back({prefix + "bias", bias.detach()});
}

}  // namespace

FactoredLinear read_panther_linear(const std::filesystem::path& file, std::string_view prefix) {
  const PantherLayer stored(file, prefix);
  const Tensor s1 = stored.take_any("S1s", 3);
  const Index terms = s1.size(0), inputs = s1.size(1), low_rank = s1.size(2);
  const Index outputs = stored.take_any("S2s", 3).size(2);
  const Tensor s2 = stored.take("S2s", {terms, low_rank, outputs});
  const Tensor u1 = stored.take_signs("U1s", {terms, low_rank, outputs}, low_rank);
  const Tensor u2 = stored.take_signs("U2s", {terms, inputs, low_rank}, low_rank);
  FactoredWeights weights;
  weights.first = rows_of_terms(s1);
  weights.second = s2.reshape({-1, outputs});
  weights.bias = stored.take_bias(outputs);
  weights.signs = pack_signs(at::cat({u1.reshape({-1}), rows_of_terms(u2).reshape({-1})}));
  FactoredLinearOptions options;
  options.in_features = inputs;
  options.out_features = outputs;
  options.rank = 2 * terms * low_rank;
  options.terms = terms;
  options.bias = weights.bias.defined();
  return FactoredLinear(options, weights);
}

SketchedConv2d read_panther_conv(const std::filesystem::path& file, std::string_view prefix,
                                 const SketchedConv2dOptions& geometry) {
  const PantherLayer stored(file, prefix);
  const Tensor u = stored.take_any("U1s", 3);
  const Index low_rank = u.size(1), rank = u.size(0) * low_rank, outputs = u.size(2);
  const Tensor s = stored.take_any("S1s", 4);
  SketchedConv2dWeights weights;
  weights.first = stored.take("S1s", {rank, s.size(1), s.size(2), s.size(3)});
  weights.bias = stored.take_bias(outputs);
  weights.signs = pack_signs(stored.take_signs("U1s", u.sizes(), low_rank));
  SketchedConv2dOptions options = geometry;
  options.in_channels = s.size(1);
  options.out_channels = outputs;
  options.kernel = {s.size(2), s.size(3)};
  options.groups = 1;
  options.rank = rank;
  options.terms = u.size(0) / 2;
  options.mode = FactorMode::Sketched;
  options.bias = weights.bias.defined();
  if (u.size(0) % 2 != 0) {
    fail_corrupt(file.string(), concat("an even first size of ", prefix, "U1s"), concat(u.size(0)));
  }
  return SketchedConv2d(options, weights);
}

std::vector<NamedTensor> panther_tensors(const FactoredLinearImpl& layer, std::string_view prefix) {
  const auto& options = layer.options();
  const auto [u1, u2] = layer.fixed_signs();
  const Index terms = options.terms;
  const at::ScalarType type = layer.first().scalar_type();
  const std::string name(prefix);
  std::vector<NamedTensor> out{
      {name + "S1s", terms_of_rows(layer.first().detach(), terms)},
      {name + "S2s", layer.second().detach().reshape({terms, -1, options.out_features})},
      {name + "U1s", u1.view({terms, -1, options.out_features}).to(type)},
      {name + "U2s", terms_of_rows(u2, terms).to(type)}};
  add_bias_to(out, layer.bias(), name);
  return out;
}

std::vector<NamedTensor> panther_tensors(const SketchedConv2dImpl& layer, std::string_view prefix) {
  const auto& options = layer.options();
  HONE_CHECK(options.groups == 1, "panther_tensors", "one group", options.groups);
  const std::string name(prefix);
  const Tensor u = layer.fixed_signs().view({2 * options.terms, -1, options.out_channels});
  std::vector<NamedTensor> out{{name + "S1s", layer.first().detach()},
                               {name + "U1s", u.to(layer.first().scalar_type())}};
  add_bias_to(out, layer.bias(), name);
  return out;
}

}  // namespace hone::nn

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hone/core/tensor_view.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels::test {

// Tensors that end where the next page must not be touched.
class FloatList {
 public:
  explicit FloatList(const std::vector<std::vector<float>>& values) {
    for (const auto& tensor : values) {
      memory_.push_back(std::make_unique<GuardedFloats>(tensor));
      views.emplace_back(memory_.back()->data(), Dtype::Float32,
                         Shape{static_cast<Index>(tensor.size())});
    }
  }
  // Random, uniform in (-size, size).
  FloatList(const std::vector<Index>& sizes, std::uint64_t seed, float size = 1)
      : FloatList(random_tensors(sizes, seed, size)) {}

  std::vector<float> values(std::size_t i) const {
    const auto* data = views[i].as<float>();
    return {data, data + views[i].elements()};
  }
  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> all;
    for (std::size_t i = 0; i < views.size(); ++i) all.push_back(values(i));
    return all;
  }
  std::vector<float> joined() const {
    std::vector<float> all;
    for (const auto& tensor : values()) all.insert(all.end(), tensor.begin(), tensor.end());
    return all;
  }

  std::vector<TensorView> views;

 private:
  static std::vector<std::vector<float>> random_tensors(const std::vector<Index>& sizes,
                                                        std::uint64_t seed, float size) {
    std::vector<std::vector<float>> all;
    for (const Index n : sizes) all.push_back(random_values(n, seed + all.size(), size));
    return all;
  }

  std::vector<std::unique_ptr<GuardedFloats>> memory_;
};

// Every tail, and tensors around one chunk and several.
inline std::vector<Index> tail_sizes() {
  std::vector<Index> sizes;
  for (Index n = 0; n <= 70; ++n) sizes.push_back(n);
  for (const Index n : {16'383, 16'384, 16'385, 3, 70'001, 0, 1}) sizes.push_back(n);
  return sizes;
}

}  // namespace hone::kernels::test

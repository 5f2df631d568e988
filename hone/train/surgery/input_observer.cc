// SPDX-License-Identifier: Apache-2.0
#include "hone/train/surgery/input_observer.h"

#include <memory>
#include <set>
#include <utility>

#include "hone/train/surgery/layer_surgery.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using torch::nn::AnyModule;

class ObserverImpl final : public torch::nn::Module {
 public:
  ObserverImpl(AnyModule layer, std::function<void(const Tensor&)> observe)
      : layer_(std::move(layer)), observe_(std::move(observe)) {}

  Tensor forward(const Tensor& x) {
    observe_(x);
    return layer_.forward(x);
  }

 private:
  AnyModule layer_;
  std::function<void(const Tensor&)> observe_;
};

class RestoreAtEnd {
 public:
  explicit RestoreAtEnd(torch::nn::Module& model) : snapshot_(snapshot(model)) {}
  ~RestoreAtEnd() { restore(snapshot_); }
  RestoreAtEnd(const RestoreAtEnd&) = delete;
  RestoreAtEnd& operator=(const RestoreAtEnd&) = delete;

 private:
  Snapshot snapshot_;
};

}  // namespace

void observe_inputs(torch::nn::Module& model, std::span<const std::string> paths,
                    const std::function<void()>& run,
                    const std::function<void(const std::string& path, const Tensor& x)>& observe) {
  const RestoreAtEnd guard(model);
  const std::set<std::string> wanted(paths.begin(), paths.end());
  for (const Layer& layer : layers_of(model)) {
    if (!wanted.contains(layer.path) || !is_replaceable(layer)) continue;
    replace_place(layer, AnyModule(std::make_shared<ObserverImpl>(
                             content_of(layer), [&observe, path = layer.path](const Tensor& x) {
                               observe(path, x);
                             })));
  }
  run();
}

}  // namespace hone::nn

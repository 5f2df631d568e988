// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/kernels/cuda/runtime.cuh"
#include "hone/kernels/multi_tensor/cuda/cuda_step.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels::cuda::test {

using hone::test::TensorSet;
using hone::test::TensorSetOptions;

class OwnedStream {
 public:
  OwnedStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  ~OwnedStream() { cudaStreamDestroy(stream_); }
  operator Stream() const { return {stream_}; }
  cudaStream_t native_stream() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// Copies from pageable memory and memsets may end after they return, and other streams do not wait.
inline void copy_bytes(void* to, const void* from, Index bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  check(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), kind), "cudaMemcpy");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
inline void fill_bytes(const DeviceBuffer& buffer, int value) {
  if (buffer.bytes() == 0) return;
  check(cudaMemset(buffer.as<void>(), value, static_cast<std::size_t>(buffer.bytes())),
        "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

// A TensorSet's tensors on the device, each slot of each tensor in memory of its own with the set's
// misalignment.
class DeviceTensors {
 public:
  DeviceTensors(TensorSet& set, const TensorSetOptions& options)
      : options_(options),
        steps_(set.tensors() * Index{sizeof(Index)}),
        correlations_(set.tensors() * Index{sizeof(double)}),
        group_(set.group) {
    fill_bytes(steps_, 0);
    fill_bytes(correlations_, 0);
    add(set, set.param, true);
    add(set, set.param, true);  // gradients: filled by upload_grads
    add(set, set.momentum, options.momentum);
    add(set, set.second_moment, options.second_moment);
    add(set, set.extra, options.extra);
    upload_grads(set);
  }

  MultiTensorLists lists() {
    return {views_[0], views_[1], views_[2], views_[3], views_[4], group_, steps()};
  }
  std::span<Index> steps() { return {steps_.as<Index>(), group_.size()}; }
  std::span<double> correlations() { return {correlations_.as<double>(), group_.size()}; }
  std::vector<TensorView>& views(Slot slot) { return views_[static_cast<std::size_t>(slot)]; }

  // The gradients the set points at.
  void upload_grads(TensorSet& set) {
    for (Index i = 0; i < set.tensors(); ++i) {
      copy(views_[1][static_cast<std::size_t>(i)].data, set.grad(i).data(), set.size(i),
           cudaMemcpyHostToDevice);
    }
  }
  // Parameters, state and step counters back into the set.
  void download(TensorSet& set) {
    fetch(set, set.param, 0);
    if (options_.momentum) fetch(set, set.momentum, 2);
    if (options_.second_moment) fetch(set, set.second_moment, 3);
    if (options_.extra) fetch(set, set.extra, 4);
    copy_bytes(set.step.data(), steps_.as<void>(), steps_.bytes(), cudaMemcpyDeviceToHost);
  }
  std::vector<double> read_correlations() {
    std::vector<double> values(group_.size());
    copy_bytes(values.data(), correlations_.as<void>(), correlations_.bytes(),
               cudaMemcpyDeviceToHost);
    return values;
  }
  std::vector<float> read(Slot slot, Index tensor) {
    const TensorView& view = views(slot)[static_cast<std::size_t>(tensor)];
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    copy(values.data(), view.data, view.elements(), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  static void copy(void* to, const void* from, Index elements, cudaMemcpyKind kind) {
    copy_bytes(to, from, elements * Index{sizeof(float)}, kind);
  }
  void add(TensorSet& set, std::vector<std::vector<float>>& from, bool used) {
    auto& views = views_[lists_++];
    for (Index i = 0; used && i < set.tensors(); ++i) {
      buffers_.emplace_back((set.size(i) + options_.misalign) * Index{sizeof(float)});
      float* data = buffers_.back().as<float>() + options_.misalign;
      copy(data, set.values(from, i).data(), set.size(i), cudaMemcpyHostToDevice);
      views.emplace_back(data, Dtype::Float32, Shape{set.size(i)});
    }
  }
  void fetch(TensorSet& set, std::vector<std::vector<float>>& to, std::size_t list) {
    for (Index i = 0; i < set.tensors(); ++i) {
      copy(set.values(to, i).data(), views_[list][static_cast<std::size_t>(i)].data, set.size(i),
           cudaMemcpyDeviceToHost);
    }
  }

  TensorSetOptions options_;
  DeviceBuffer steps_, correlations_;
  std::vector<std::uint16_t> group_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<TensorView> views_[5];
  std::size_t lists_ = 0;
};

constexpr Transport kTransports[] = {Transport::StructSmall, Transport::StructLarge,
                                     Transport::DeviceTable};

}  // namespace hone::kernels::cuda::test

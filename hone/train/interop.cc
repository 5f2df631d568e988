// SPDX-License-Identifier: Apache-2.0
#include "hone/train/interop.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "hone/core/buffer.h"
#include "hone/core/check.h"

namespace hone {
namespace {

struct TypePair {
  at::ScalarType torch;
  Dtype hone;
};
constexpr std::array<TypePair, 11> kTypes{{
    {at::kFloat, Dtype::Float32},
    {at::kHalf, Dtype::Float16},
    {at::kBFloat16, Dtype::BFloat16},
    {at::kDouble, Dtype::Float64},
    {at::kChar, Dtype::Int8},
    {at::kByte, Dtype::UInt8},
    {at::kInt, Dtype::Int32},
    {at::kLong, Dtype::Int64},
    {at::kBool, Dtype::Bool},
    {at::ScalarType::Float8_e4m3fn, Dtype::Float8E4M3},
    {at::ScalarType::Float8_e5m2, Dtype::Float8E5M2},
}};

// One worker's share of the chunks, on its own cache line.
struct alignas(kCacheLine) Share {
  std::atomic<Index> next{0};
  Index end = 0;
};
constexpr int kMaxWorkers = 256;

class LibtorchExecutor final : public Executor {
 public:
  int workers() const override { return std::clamp(at::get_num_threads(), 1, kMaxWorkers); }

  void parallel_for(Index n, Index grain, RangeBody body) override {
    HONE_CHECK(grain >= 1, "parallel_for", "a grain of at least 1", grain);
    if (n <= 0) return;
    const Index chunks = ceil_div(n, grain);
    const auto run_chunk = [&](Index chunk, int worker) {
      body(chunk * grain, std::min(n, (chunk + 1) * grain), worker);
    };
    const int team = static_cast<int>(std::min<Index>(workers(), chunks));
    if (team == 1 || at::in_parallel_region()) {
      for (Index chunk = 0; chunk < chunks; ++chunk) run_chunk(chunk, 0);
      return;
    }
    std::array<Share, kMaxWorkers> shares;
    const Index share = ceil_div(chunks, team);
    for (int w = 0; w < team; ++w) {
      shares[w].next = std::min(chunks, w * share);
      shares[w].end = std::min(chunks, (w + 1) * share);
    }
    // LibTorch may provide fewer threads than requested; those that run take the remaining shares.
    at::parallel_for(0, team, 1, [&](std::int64_t first, std::int64_t last) {
      for (auto w = static_cast<int>(first); w < last; ++w) {
        for (int i = 0; i < team; ++i) {
          Share& from = shares[(w + i) % team];
          for (Index chunk;
               (chunk = from.next.fetch_add(1, std::memory_order_relaxed)) < from.end;) {
            run_chunk(chunk, w);
          }
        }
      }
    });
  }

  PublishTicket parallel_publish(PublishWork work) override {
    const Index slot_bytes = round_up(std::max<Index>(work.slot_bytes, 1), kCacheLine);
    const Buffer slots(workers() * slot_bytes);
    parallel_for(work.chunks, 1, [&](Index begin, Index end, int worker) {
      for (Index chunk = begin; chunk < end; ++chunk) {
        std::byte* slot = slots.data() + worker * slot_bytes;
        work.compute(chunk, slot);
        work.commit(chunk, slot);
      }
    });
    return {};
  }

  void wait_left(PublishTicket) override {}
};

}  // namespace

std::span<const std::byte> tensor_bytes(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

Dtype dtype_of(at::ScalarType type, std::string_view what) {
  for (const TypePair& pair : kTypes) {
    if (pair.torch == type) return pair.hone;
  }
  fail_unsupported(what, "a real number type", at::toString(type));
}

at::ScalarType scalar_type_of(Dtype dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.hone == dtype) return pair.torch;
  }
  fail_unsupported("scalar_type_of", "a type LibTorch has", name_of(dtype));
}

TensorView view_of(const at::Tensor& tensor, std::string_view what) {
  return view_of(tensor, at::kCPU, what);
}

TensorView view_of(const at::Tensor& tensor, c10::Device device, std::string_view what) {
  if (!tensor.defined()) fail_argument(what, "a tensor", "an undefined one");
  if (tensor.layout() != at::kStrided) {
    fail_unsupported(what, "a dense tensor", concat("layout ", c10::str(tensor.layout())));
  }
  if (tensor.device() != device) {
    fail_unsupported(what, device.is_cpu() ? "a CPU tensor" : concat("a tensor on ", device.str()),
                     tensor.device().str());
  }
  if (tensor.dim() > Shape::kMaxRank) {
    fail_unsupported(what, concat("at most ", Shape::kMaxRank, " dimensions"),
                     concat(tensor.dim()));
  }
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  return {tensor.data_ptr(), dtype_of(tensor.scalar_type(), what),
          Shape(std::span<const Index>(sizes.data(), sizes.size())),
          Shape(std::span<const Index>(strides.data(), strides.size()))};
}

Executor& libtorch_executor() {
  static LibtorchExecutor executor;
  return executor;
}

void Sources::set(at::TensorList tensors) {
  tensors_.clear();
  versions_.clear();
  for (const at::Tensor& tensor : tensors) {
    tensors_.push_back(tensor.defined() ? tensor.detach() : tensor);
    versions_.push_back(tensor.defined() ? version_of(tensor) : 0);
  }
}

bool Sources::are(at::TensorList tensors) const {
  if (tensors.size() != tensors_.size()) return false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined() != tensors_[i].defined()) return false;
    if (!tensors[i].defined()) continue;
    const bool same = tensors[i].data_ptr() == tensors_[i].data_ptr() &&
                      tensors[i].sizes().equals(tensors_[i].sizes()) &&
                      version_of(tensors[i]) == versions_[i];
    if (!same) return false;
  }
  return true;
}

}  // namespace hone

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

namespace hone::test {

// Counts the operators of this thread whose result the host needs before it can go on, and for
// which it would therefore wait where tensors are on another device.
class HostReads {
 public:
  HostReads()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}))) {
    count_ = 0;
  }
  ~HostReads() { at::removeCallback(handle_); }
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;

  int count() const { return count_; }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& call) {
    constexpr std::array<std::string_view, 5> kReads = {"aten::_local_scalar_dense", "aten::equal",
                                                        "aten::nonzero", "aten::masked_select",
                                                        "aten::_unique2"};
    const std::string_view name = call.name();
    if (std::find(kReads.begin(), kReads.end(), name) != kReads.end()) ++count_;
    return nullptr;
  }

  static inline thread_local int count_ = 0;
  at::CallbackHandle handle_;
};

}  // namespace hone::test

// SPDX-License-Identifier: Apache-2.0
#include "hone/core/thread/executor.h"

#include <algorithm>

#include "hone/core/buffer.h"
#include "hone/core/check.h"

namespace hone {
namespace {

class SerialExecutor final : public Executor {
 public:
  int workers() const override { return 1; }

  void parallel_for(Index n, Index grain, RangeBody body) override {
    HONE_CHECK(grain > 0, "parallel_for", "grain > 0", grain);
    for (Index begin = 0; begin < n; begin += grain) body(begin, std::min(n, begin + grain), 0);
  }

  PublishTicket parallel_publish(PublishWork work) override {
    const Buffer slot(std::max<Index>(work.slot_bytes, 1));
    for (Index chunk = 0; chunk < work.chunks; ++chunk) {
      work.compute(chunk, slot.data());
      work.commit(chunk, slot.data());
    }
    return {};
  }

  void wait_left(PublishTicket) override {}
};

}  // namespace

Executor& serial_executor() {
  static SerialExecutor executor;
  return executor;
}

}  // namespace hone

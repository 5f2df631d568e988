// SPDX-License-Identifier: Apache-2.0
#pragma once

// Forward declarations for headers that are used without LibTorch.

namespace at {
class Tensor;
}

namespace c10 {
struct Device;
}

namespace hone::optim {
class MultiTensorOptimizer;
}

namespace hone::trainer {
class Task;
}

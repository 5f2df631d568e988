// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names for headers whose readers need no LibTorch.

namespace at {
class Tensor;
}

namespace hone::optim {
class MultiTensorOptimizer;
}

namespace hone::trainer {
class Task;
}

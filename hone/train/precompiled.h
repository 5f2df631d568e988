// SPDX-License-Identifier: Apache-2.0
#pragma once

// The precompiled header of the training layer: the LibTorch headers that its files share. The
// umbrella <torch/torch.h> would also include data loading, functional modules and JIT. Every file
// includes what it uses; this header only makes that fast.

#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/file/json_io.h"

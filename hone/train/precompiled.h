// SPDX-License-Identifier: Apache-2.0
#pragma once

// The training layer's precompiled header: the LibTorch headers that its files share, instead of
// the umbrella <torch/torch.h>, which also pulls in data loading, functional modules and JIT. Every
// file includes what it uses; this header only makes that cheap.

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

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The precompiled header of the layers without LibTorch, except kernels. Every file includes what
// it uses; this header only makes that cheap.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/file/json_io.h"

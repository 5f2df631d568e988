// SPDX-License-Identifier: Apache-2.0
#pragma once

// The precompiled header of the tests that include LibTorch's headers.

#include "hone/train/precompiled.h"
#include "tests/support/precompiled.h"

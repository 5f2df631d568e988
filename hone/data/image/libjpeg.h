// SPDX-License-Identifier: Apache-2.0
#pragma once

// clang-format off
#include <cstdio>  // FILE and size_t, which the next header needs
#include <jpeglib.h>
// clang-format on

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The precompiled header of the tests without LibTorch. Every file includes what it uses; this
// header only makes that cheap.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

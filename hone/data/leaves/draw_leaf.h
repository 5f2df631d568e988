// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/data/image/image.h"
#include "hone/data/leaves/leaf_cues.h"

namespace hone::data {

// A picture of side x side pixels of a leaf with these cues, which range over `levels` levels.
// Everything else is drawn from `key`, with the same distribution for all cues. The mean and the
// deviation of each channel are moved to drawn values, up to what is lost where values leave 0 …
// 255. The veins cover the same share of the leaf whatever their spacing, and number, area and
// darkness of blotches and number and depth of notches are fixed, so that the cues are in the
// arrangement of pixels, not in how many there are of each color.
Image draw_leaf(const LeafCues& cues, Index levels, Index side, std::uint64_t key);

}  // namespace hone::data

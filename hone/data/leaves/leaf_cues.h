// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "hone/core/index.h"

namespace hone::data {

// A synthetic set of leaves for fine-grained classification. A class is a triple of levels, one of
// each of three cues (the spacing of the veins, the shape of the blotches, the distance of paired
// notches in the margin); every two classes differ in one to three cues, and no cue alone separates
// three classes or more. Within a class the cues vary by normal deviates whose width grows with the
// difficulty. Everything else (pose, outline, color, light, background, a blade that covers a part)
// has one distribution for all classes. An image is a pure function of options, split, class and
// index, with the same bytes on every machine.
struct LeavesOptions {
  Index classes = 16;
  Index size = 64;                        // side of an image in pixels
  Index train = 40, val = 10, test = 20;  // images of each class
  double difficulty = 0.5;                // 0: no variation of the cues within a class; to 1
  Index seed = 1;
};
// Throws Error{InvalidArgument} that names the key of the option: "data.leaves.classes".
void check_leaves(const LeavesOptions& options);

enum class LeafSplit : std::uint32_t { Train, Val, Test };

// The cues of a leaf in units of the distance between neighboring levels, with 0 in the middle. The
// shape of blotches is a point in a plane: its direction is twice the angle of the long axis to the
// midrib, its length grows with the logarithm of the ratio of the axes. Its levels are the corners
// of a regular polygon.
struct LeafCues {
  double vein = 0, blotch_x = 0, blotch_y = 0, notch = 0;
};

// The number of levels of each cue: the least that gives enough triples, and at least 2.
Index leaf_levels(Index classes);
// The levels of vein, blotch and notch of a class. All triples are distinct, and each level occurs
// in classes / levels classes, up to one more or less.
std::array<Index, 3> levels_of_class(Index label, Index classes);
LeafCues mean_cues(Index label, Index classes);
// Standard deviation of each coordinate within a class.
double cue_deviation(double difficulty);
// mean_cues() and the deviates of this image.
LeafCues cues_of_image(const LeavesOptions& options, LeafSplit split, Index label, Index index);
// What all draws of an image come from.
std::uint64_t leaf_key(const LeavesOptions& options, LeafSplit split, Index label, Index index);

struct LeavesCeiling {
  double accuracy = 0, standard_error = 0;
};
// The share of leaves that the best decision (Bayes: the nearest class) classifies correctly when
// it sees the varied cues themselves; a classifier of the images can only do worse. Estimated from
// a fixed set of 2^17 deviates, so that it never rises with the difficulty.
LeavesCeiling leaves_ceiling(const LeavesOptions& options);

}  // namespace hone::data

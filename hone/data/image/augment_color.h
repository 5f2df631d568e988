// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/data/image/image.h"

namespace hone::data {

// Changes of color for augmentation, with the formulas of Pillow's ImageEnhance, which torchvision
// uses for images: the result is other + factor (image - other), clamped to 0 … 255 and truncated,
// where a factor of 1 changes nothing. They take images of any size and finite factors of at least
// 0. A gray image (red = green = blue) stays gray.

// other: black.
void adjust_brightness(Image& image, double factor);
// other: the mean of the luma, rounded.
void adjust_contrast(Image& image, double factor);
// other: the luma of each pixel.
void adjust_saturation(Image& image, double factor);
// other: the image smoothed by the kernel (1 1 1, 1 5 1, 1 1 1) / 13; pixels at the border, and
// images of less than 3 pixels in an axis, stay as they are.
void adjust_sharpness(Image& image, double factor);

// Turns the hue of the HSV model by `turns` of the color circle, in floating point as torchvision
// does for tensors. 0 changes nothing.
void adjust_hue(Image& image, double turns);

}  // namespace hone::data

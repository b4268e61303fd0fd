// ImageWindow: a rectangle in an image.
#pragma once

#include <cstdint>
#include <functional>

#include "core/size2.h"

namespace axle::data {

// The pixels of rows top to top + size.h - 1 and columns left to left + size.w - 1.
struct ImageWindow {
    std::int64_t top = 0, left = 0;
    Size2 size;

    bool operator==(const ImageWindow&) const = default;
};

// Returns the window that is needed of an image of this size. The window must be in the image and
// must have pixels.
using ChooseWindow = std::function<ImageWindow(Size2 image)>;

}  // namespace axle::data

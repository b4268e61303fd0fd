// MNIST, and what is packed like it: Fashion-MNIST, KMNIST.
#pragma once

#include <string>

#include "data/dataset.h"

namespace axle::inline v0::data {

// Samples {"image": u8 [1, 28, 28], "label": i64} of the folder's train-images-idx3-ubyte and
// train-labels-idx1-ubyte (60,000), or of the two t10k files (10,000); each plain or with .gz. All
// images are held in memory, 47 MB. FileError if a file is missing or damaged, if the images are
// not 28 x 28, if a label is beyond 9, or if there are not as many labels as images.
TensorDataset mnist(const std::string& folder, bool train = true);

}  // namespace axle::inline v0::data

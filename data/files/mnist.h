// Reads MNIST and datasets in the same format: Fashion-MNIST, KMNIST.
#pragma once

#include <string>

#include "data/dataset.h"

namespace axle::data {

// Returns samples {"image": u8 [1, 28, 28], "label": i64} from train-images-idx3-ubyte and
// train-labels-idx1-ubyte (60,000), or the two t10k files (10,000), in the folder; each file plain
// or with .gz. Keeps all images in memory (47 MB). Throws FileError if a file is missing or
// corrupt, images are not 28 x 28, a label is above 9, or the numbers of labels and images differ.
TensorDataset mnist(const std::string& folder, bool train = true);

}  // namespace axle::data

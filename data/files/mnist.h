// Reads MNIST, and datasets in the same format such as Fashion-MNIST and KMNIST.
#pragma once

#include <string>

#include "data/dataset.h"

namespace axle::data {

// Returns samples {"image": u8 [1, 28, 28], "label": i64 []}. Reads the files
// train-images-idx3-ubyte and train-labels-idx1-ubyte (60,000 samples) in the folder, or the two
// t10k files (10,000 samples) if `train` is false. The files can be compressed (.gz). Keeps all
// images in memory (47 MB). Throws FileError if a file is missing or corrupt, images are not 28 x
// 28, a label is above 9, or the numbers of labels and images differ.
TensorDataset mnist(const std::string& folder, bool train = true);

}  // namespace axle::data

// Private to kernels: finds the fastest algorithm of cuBLASLt for a product by running the
// candidates, and stores it in a file.
//
// AXLE_MATMUL_TUNE=0 disables tuning, and "all" also tunes the smallest products. AXLE_MATMUL_CACHE
// is the path of the file, or empty for no file. By default it is in $XDG_CACHE_HOME/axle or
// ~/.cache/axle, with a name that contains the GPU and the version of cuBLASLt.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

#include <cublasLt.h>

#include "kernels/exec.h"

namespace axle::kernels {

// Returns whether a product with `work` multiply-adds is worth tuning and the stream can be waited
// for.
bool should_tune(const Cuda& on, double work);

// Measures the candidates with events on the stream and waits for it. Returns the index of the
// fastest candidate (the first of those that are about equally fast), or -1 if none can run. run(i)
// queues candidate i and returns whether this was possible.
int fastest(const Cuda& on, int candidates, const std::function<bool(int)>& run);

// Tuning results for one type of GPU, shared between processes. A file that cannot be read or
// written is ignored, as are invalid lines. Not thread-safe.
class TuningFile {
  public:
    // Opens the file of this device and version of cuBLASLt.
    TuningFile(int device, std::size_t version);

    // Find or add the algorithm of a product by its key. Keys contain no spaces.
    std::optional<cublasLtMatmulAlgo_t> find(const std::string& key);
    void add(const std::string& key, const cublasLtMatmulAlgo_t& algo);

  private:
    void read();
    void write() const;

    std::string path_, title_;
    bool was_read_ = false;
    std::unordered_map<std::string, cublasLtMatmulAlgo_t> algos_;
};

}  // namespace axle::kernels

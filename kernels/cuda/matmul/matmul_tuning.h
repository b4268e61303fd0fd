// Private to kernels: finds the fastest algorithm of cuBLASLt for a product by running the
// candidates, and stores it in a file.
//
// AXLE_MATMUL_TUNE=0 disables tuning, and AXLE_MATMUL_TUNE=all also tunes the smallest products.
// AXLE_MATMUL_CACHE is the path of the file; an empty path disables the file. By default the file
// is in $XDG_CACHE_HOME/axle or ~/.cache/axle, with a name that contains the GPU and the version of
// cuBLASLt.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

#include <cublasLt.h>

#include "kernels/exec.h"

namespace axle::kernels {

// Returns whether to tune a product with `work` multiply-adds now. This requires that tuning is
// enabled, that the product is large enough, and that the stream is not being captured.
bool should_tune(const Cuda& on, double work);

// Measures the candidates with events on the stream and waits for the stream. Returns the index of
// the fastest candidate (the first one, if several are about equally fast), or -1 if no candidate
// can run. run(i) queues candidate i and returns whether this was possible.
int fastest(const Cuda& on, int candidates, const std::function<bool(int)>& run);

// Tuning results for one type of GPU, shared between processes through a file. Invalid lines, and
// errors when the file is read or written, are ignored. Not thread-safe.
class TuningFile {
  public:
    // Chooses the file for a device and a version of cuBLASLt. The file is read on first use.
    TuningFile(int device, std::size_t version);

    // find() returns the algorithm of the product with this key, or nullopt. add() stores it and
    // writes the file. Keys must not contain spaces.
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

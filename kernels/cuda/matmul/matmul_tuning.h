// Private to kernels: which of cuBLASLt's algorithms is the fastest for a product, found by running
// them, and remembered in a file.
//
// AXLE_MATMUL_TUNE: 0 runs none, "all" runs those of the smallest products too.
// AXLE_MATMUL_CACHE: the file, none if it is empty. By default it lies in $XDG_CACHE_HOME/axle or
// ~/.cache/axle and is named after the GPU and the version of cuBLASLt.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

#include <cublasLt.h>

#include "kernels/exec.h"

namespace axle::inline v0::kernels {

// Whether a product of so many multiply-adds is worth it, and the stream can be waited for.
bool may_tune(const Cuda& on, double work);

// The number of the fastest candidate, by events on the stream, which it waits for; the first of
// those that are about equally fast. run(i) queues candidate i and tells whether it could. -1 if
// none can.
int fastest(const Cuda& on, int candidates, const std::function<bool(int)>& run);

// What processes have found on GPUs of one kind. A file that can't be read or written is ignored,
// as are lines that make no sense. Not synchronised.
class TuningFile {
  public:
    // Of the device, and cuBLASLt in this version.
    TuningFile(int device, std::size_t version);

    // Keys have no blanks.
    std::optional<cublasLtMatmulAlgo_t> find(const std::string& key);
    void add(const std::string& key, const cublasLtMatmulAlgo_t& algo);

  private:
    void read();
    void write() const;

    std::string path_, title_;
    bool was_read_ = false;
    std::unordered_map<std::string, cublasLtMatmulAlgo_t> algos_;
};

}  // namespace axle::inline v0::kernels

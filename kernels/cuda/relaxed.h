// Private to the library: CUDA calls during a stream capture that are not part of it.
#pragma once

#include <cuda_runtime_api.h>

namespace axle::kernels {

// Allows calls that a capture would refuse on this thread, for the lifetime of the object. They
// must not affect the captured stream.
class RelaxedCaptureScope {
  public:
    RelaxedCaptureScope() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~RelaxedCaptureScope() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
    RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace axle::kernels

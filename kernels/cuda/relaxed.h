// Private to the library: CUDA calls that are made during a stream capture but are not captured.
#pragma once

#include <cuda_runtime_api.h>

namespace axle::kernels {

// Permits calls on this thread that are normally forbidden during a capture, for the lifetime of
// the object. These calls must not affect the captured stream.
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

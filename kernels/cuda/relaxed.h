// Private to the library: calls beside a capture.
#pragma once

#include <cuda_runtime_api.h>

namespace axle::inline v0::kernels {

// While it lives, calls that a capture would refuse are allowed on this thread: they have nothing
// to do with the captured stream.
class Relaxed {
  public:
    Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace axle::inline v0::kernels

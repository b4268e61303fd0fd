// A library for `axle bench --library`. It is written in C to check that the header is valid C.
#include <axle/kernels/kernel_library.h>

static int32_t add(const AxleKernelCall* call) {
    const AxleKernelView *a = &call->inputs[0], *b = &call->inputs[1], *y = &call->outputs[0];
    if (a->dtype != AXLE_F32 || a->stride[1] != 1 || b->stride[1] != 1) return 1;
    for (int64_t r = 0; r < a->shape[0]; ++r)
        for (int64_t c = 0; c < a->shape[1]; ++c)
            ((float*)y->data)[r * y->stride[0] + c] =
                ((const float*)a->data)[r * a->stride[0] + c] +
                ((const float*)b->data)[r * b->stride[0] + c];
    return 0;
}

static const AxleKernel kernels[] = {{"add", "plain C", add}};
static const AxleKernelLibrary library = {AXLE_KERNEL_LIBRARY_VERSION, 1, kernels};

__attribute__((visibility("default"))) const AxleKernelLibrary* axle_kernel_library(
    uint32_t version);
const AxleKernelLibrary* axle_kernel_library(uint32_t version) {
    return version == AXLE_KERNEL_LIBRARY_VERSION ? &library : 0;
}

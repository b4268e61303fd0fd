// A library of kernels for the tests of `axle bench --library`. The environment variable
// AXLE_TEST_KERNELS selects its kernels.
#include <cstdlib>
#include <iterator>
#include <string>

#include "kernels/kernel_library.h"

namespace {

// Writes nothing, so the outputs are wrong.
std::int32_t idle(const AxleKernelCall*) { return 0; }
// Returns a code that depends on the number of threads.
std::int32_t unsupported(const AxleKernelCall* call) { return 6 + call->threads; }

constexpr AxleKernel kIdle[] = {{"softmax", "idle", idle}, {"softmax", "unsupported", unsupported}};
constexpr AxleKernel kUnknown[] = {{"sofmax", "unknown", idle}};
constexpr AxleKernel kRandom[] = {{"dropout", "random", idle}};
constexpr AxleKernel kNameless[] = {{"softmax", nullptr, idle}};
constexpr std::uint32_t kVersion = AXLE_KERNEL_LIBRARY_VERSION;
constexpr AxleKernelLibrary kLibraries[] = {{kVersion, 2, kIdle},
                                            {kVersion, 1, kUnknown},
                                            {kVersion, 1, kRandom},
                                            {kVersion, 1, kNameless},
                                            {kVersion + 1, 2, kIdle}};

}  // namespace

extern "C" [[gnu::visibility("default")]] const AxleKernelLibrary* axle_kernel_library(
    std::uint32_t) {
    const char* const chosen = std::getenv("AXLE_TEST_KERNELS");
    const std::string name = chosen == nullptr ? "" : chosen;
    const char* const names[] = {"idle", "unknown", "random", "nameless", "newer"};
    for (std::size_t i = 0; i < std::size(names); ++i)
        if (name == names[i]) return &kLibraries[i];
    return nullptr;
}

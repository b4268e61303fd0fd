# The toolchain for ARM64 Linux on a machine of another architecture. tools/check_arm64 uses it and
# installs what it needs: the cross compiler and the emulator of Debian, and the libraries for ARM64
# below AXLE_ARM64_SYSROOT.
#
# AXLE_ARM64_VECTORS selects the instruction set of the kernels: NEON, which all ARM64 CPUs have, or
# SVE_256 or SVE2_128, for CPUs whose SVE registers have exactly 256 bits, or SVE2 registers exactly
# 128 bits.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH root)
set(AXLE_ARM64_SYSROOT "${root}/build/arm64/libraries" CACHE PATH
    "The folder of the libraries for ARM64, which contains usr/include and usr/lib")
set(AXLE_ARM64_VECTORS NEON CACHE STRING "Vector instructions: NEON, SVE_256 or SVE2_128")
set_property(CACHE AXLE_ARM64_VECTORS PROPERTY STRINGS NEON SVE_256 SVE2_128)
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)  # notes that GCC 10 changed the ABI of std::pair<double, double>
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES AXLE_ARM64_SYSROOT AXLE_ARM64_VECTORS)
set(processor max,sve=off)  # the CPU that QEMU emulates
if(AXLE_ARM64_VECTORS STREQUAL "SVE_256")
    string(APPEND CMAKE_CXX_FLAGS_INIT " -march=armv8.2-a+sve -msve-vector-bits=256")
    set(processor max,sve256=on)
elseif(AXLE_ARM64_VECTORS STREQUAL "SVE2_128")
    string(APPEND CMAKE_CXX_FLAGS_INIT " -march=armv8.2-a+sve2 -msve-vector-bits=128")
    set(processor max,sve128=on)
elseif(NOT AXLE_ARM64_VECTORS STREQUAL "NEON")
    message(FATAL_ERROR
            "AXLE_ARM64_VECTORS=${AXLE_ARM64_VECTORS}: expected NEON, SVE_256 or SVE2_128")
endif()

# Programs come from this machine, libraries and headers only from the folder.
set(CMAKE_FIND_ROOT_PATH "${AXLE_ARM64_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR
    "qemu-aarch64;-L;/usr/aarch64-linux-gnu;-cpu;${processor}")

# eigen_libraries(): if Eigen is installed, builds the libraries of Eigen's kernels with which `axle
# bench` compares Axle's kernels. Eigen has no kernels for several instruction sets in one program,
# so there is one library for each of the targets baseline, avx2 and avx512 (kernels/cpu/targets.h),
# libaxle_eigen_<target>.so. With AXLE_NATIVE, only the library for this machine is built. Builds for
# other CPUs than x86-64 and builds with sanitizers have no such library. Sets `eigen_libraries` to
# the CMake targets of the libraries.
macro(eigen_libraries)
    set(eigen_libraries "")
    find_package(Eigen3 3.4 QUIET NO_MODULE)
    if(NOT TARGET Eigen3::Eigen)
        message(STATUS "axle: axle bench does not compare with Eigen, because it is missing "
                       "(libeigen3-dev)")
    elseif(NOT AXLE_SANITIZE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        find_package(OpenMP QUIET COMPONENTS CXX)
        eigen_library(baseline "")
        eigen_library(avx2 "-march=haswell")
        eigen_library(avx512 "-march=skylake-avx512")
    endif()
endmacro()

# eigen_library(target flags): adds the library for a target, unless AXLE_NATIVE selects another
# target.
function(eigen_library target flags)
    get_target_property(native axle_kernels AXLE_NATIVE_NAME)
    if(native AND NOT native STREQUAL target)
        return()
    endif()
    add_library(axle_eigen_${target} MODULE tools/axle/bench/eigen/eigen.cpp)
    target_include_directories(axle_eigen_${target} PRIVATE ${PROJECT_SOURCE_DIR})
    # GCC 12 reports its own AVX-512 intrinsics (bug 105593).
    target_compile_options(
        axle_eigen_${target} PRIVATE
        ${flags} "$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>")
    target_link_libraries(
        axle_eigen_${target} PRIVATE Eigen3::Eigen $<TARGET_NAME_IF_EXISTS:OpenMP::OpenMP_CXX>)
    if(CMAKE_RUNTIME_OUTPUT_DIRECTORY)  # next to the programs
        set_target_properties(
            axle_eigen_${target}
            PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
    endif()
    set(eigen_libraries ${eigen_libraries} axle_eigen_${target} PARENT_SCOPE)
endfunction()

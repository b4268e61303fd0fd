# The parts of a build for NVIDIA GPUs. The variable `cuda` is 1 in such a build and 0 otherwise.
#
# The CUDA runtime is linked statically. Programs open cuBLASLt, cuDNN and NCCL on first use, so
# they also run on machines without these libraries or a driver.
#
# With SIMULATED, the library is built only for the simulated GPU of tests/simulator/. This build
# needs CUDA's headers but not nvcc: the C++ compiler compiles the kernels, with its sanitizers.

set(cuda 0)
if(AXLE_CUDA STREQUAL "AUTO" AND NOT CMAKE_CROSSCOMPILING)
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        set(cuda 1)
    else()
        message(STATUS "axle: CMake finds no working CUDA compiler, so this build is for CPUs only")
    endif()
elseif(AXLE_CUDA MATCHES "^(ON|SIMULATED)$")
    set(cuda 1)
elseif(NOT AXLE_CUDA MATCHES "^(AUTO|OFF)$")
    message(FATAL_ERROR "AXLE_CUDA=${AXLE_CUDA}: expected AUTO, ON, OFF or SIMULATED")
endif()
set(simulated OFF)
if(AXLE_CUDA STREQUAL "SIMULATED")
    set(simulated ON)
endif()

if(cuda AND NOT simulated)
    if(NOT AXLE_CUDA_ARCHS)
        find_program(AXLE_NVIDIA_SMI nvidia-smi)
        mark_as_advanced(AXLE_NVIDIA_SMI)
        set(capability "")
        if(AXLE_NVIDIA_SMI)
            execute_process(COMMAND ${AXLE_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                            OUTPUT_VARIABLE capability ERROR_QUIET)
        endif()
        if(capability MATCHES "^([0-9]+)\\.([0-9])")
            set(AXLE_CUDA_ARCHS ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
            if(AXLE_CUDA_ARCHS STREQUAL "90")
                set(AXLE_CUDA_ARCHS 90a)
            endif()
        else()
            set(AXLE_CUDA_ARCHS 90a)
        endif()
    endif()
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    enable_language(CUDA)
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # not supported by CMake 3.25.1
        set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
        set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    # Compiles the host code that launches kernels with -O1, because with -O3 it takes half of the
    # compile time. nvcc optimizes the kernels themselves in any case.
    string(REPLACE "-O3" "-O1" CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_RELEASE}")
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    if(PROJECT_IS_TOP_LEVEL AND AXLE_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
        set(CMAKE_CUDA_COMPILER_LAUNCHER ${AXLE_CCACHE})
    endif()
endif()
if(simulated)
    set(AXLE_CUDA_ARCHS 90a)
endif()
if(cuda)
    list(JOIN AXLE_CUDA_ARCHS " " archs)
    set_source_files_properties(
        kernels/cuda/exec.cpp PROPERTIES COMPILE_DEFINITIONS "AXLE_CUDA_ARCHS=\"${archs}\"")
    # Imported targets are visible in other folders only if they are global.
    find_package(CUDAToolkit 12.8 REQUIRED)
    set_property(TARGET CUDA::toolkit PROPERTY IMPORTED_GLOBAL TRUE)
    add_library(axle_cuda_headers INTERFACE IMPORTED GLOBAL)
    target_include_directories(axle_cuda_headers SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
endif()

# cuda_kernels(): compiles the kernels in kernels/cuda/*.cu into the library.
function(cuda_kernels)
    if(NOT cuda OR simulated)
        return()
    endif()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS kernels/*.cu)
    add_library(axle_cuda_kernels OBJECT ${sources})
    target_link_libraries(axle_cuda_kernels PRIVATE axle_headers)
    foreach(arch IN LISTS AXLE_CUDA_ARCHS)
        target_compile_options(
            axle_cuda_kernels PRIVATE "SHELL:-gencode arch=compute_${arch},code=sm_${arch}")
    endforeach()
    # Warning 186 reports comparisons of unsigned values with zero. Formulas for all dtypes contain
    # such comparisons.
    target_compile_options(
        axle_cuda_kernels
        PRIVATE -compress-mode=size --expt-relaxed-constexpr --extended-lambda -diag-suppress=186
                -Xcompiler=-Wall,-Wextra,-fPIC
                -Xcompiler=-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
    if(NOT AXLE_GATE_PACK)
        target_compile_options(
            axle_cuda_kernels
            PRIVATE -Xcompiler=-fvisibility=hidden,-fvisibility-inlines-hidden)
    endif()
    if(AXLE_WERROR)
        target_compile_options(axle_cuda_kernels PRIVATE "SHELL:-Werror all-warnings")
    endif()
    # Without -fmad=false, the GPU would not compute the same numbers as the CPU.
    set_source_files_properties(
        kernels/cuda/optimizer/optimizer.cu kernels/cuda/pointwise/quantized_weight.cu
        PROPERTIES COMPILE_OPTIONS -fmad=false)
    target_sources(axle PRIVATE $<TARGET_OBJECTS:axle_cuda_kernels>)
    target_link_libraries(axle PRIVATE CUDA::cudart_static)
endfunction()

# cuda_simulator(): builds axle_simulator, the simulated GPU with all kernels, as objects that a
# program links before the library. In a SIMULATED build the library contains these objects.
function(cuda_simulator)
    if(NOT simulated AND NOT (cuda AND AXLE_SIMULATED_TESTS))
        return()
    endif()
    file(GLOB_RECURSE kernels RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS kernels/cuda/*.cu)
    list(REMOVE_ITEM kernels kernels/cuda/index/cub.cu)
    set(sources)
    foreach(kernel IN LISTS kernels)
        set(source ${PROJECT_BINARY_DIR}/simulated/${kernel}.cpp)
        file(CONFIGURE OUTPUT ${source}
             CONTENT "#include \"tests/simulator/device.h\"\n#include \"${kernel}\"\n")
        list(APPEND sources ${source})
    endforeach()
    add_library(
        axle_simulator OBJECT
        ${sources} tests/simulator/cub.cpp tests/simulator/fibers.cpp tests/simulator/runtime.cpp
        tests/simulator/runtime_memory.cpp tests/simulator/runtime_state.cpp
        tests/simulator/runtime_streams.cpp)
    target_link_libraries(axle_simulator PRIVATE axle_headers)
    # Warnings about pragmas and attributes of nvcc are disabled.
    target_compile_options(
        axle_simulator PRIVATE ${sanitized_options} -Wno-unknown-pragmas
                               $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)
    outline_checks(axle_simulator)
    set_source_files_properties(
        ${PROJECT_BINARY_DIR}/simulated/kernels/cuda/optimizer/optimizer.cu.cpp
        ${PROJECT_BINARY_DIR}/simulated/kernels/cuda/pointwise/quantized_weight.cu.cpp
        PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
    # NVIDIA's libraries do not work with a simulated GPU. The folder stand_ins contains fake
    # libraries. The folder no_libraries contains files that cannot be opened, to test programs
    # without libraries.
    set(stand_ins ${PROJECT_BINARY_DIR}/simulated/libraries)
    set(no_libraries ${PROJECT_BINARY_DIR}/simulated/no_libraries)
    file(MAKE_DIRECTORY ${stand_ins} ${no_libraries})
    file(TOUCH ${stand_ins}/libcudnn.so.9 ${no_libraries}/libcudnn.so.9
         ${no_libraries}/libcublasLt.so.13 ${no_libraries}/libnccl.so.2)
    add_library(axle_cublaslt SHARED tests/simulator/cublaslt.cpp
                                     tests/simulator/cublaslt_matmul.cpp)
    target_link_libraries(axle_cublaslt PRIVATE axle_headers)
    set_target_properties(
        axle_cublaslt PROPERTIES OUTPUT_NAME cublasLt SOVERSION 13
                                 LIBRARY_OUTPUT_DIRECTORY ${stand_ins}
                                 CXX_VISIBILITY_PRESET default)
    add_library(axle_nccl SHARED tests/simulator/nccl.cpp)
    target_link_libraries(axle_nccl PRIVATE axle_headers Threads::Threads)
    set_target_properties(axle_nccl PROPERTIES OUTPUT_NAME nccl SOVERSION 2 LIBRARY_OUTPUT_DIRECTORY
                                               ${stand_ins} CXX_VISIBILITY_PRESET default)
    # The fake libraries call functions of the simulator in the program that opens them.
    set_target_properties(axle_simulator PROPERTIES CXX_VISIBILITY_PRESET default)
    set_source_files_properties(
        tests/simulator/runtime.cpp
        PROPERTIES COMPILE_DEFINITIONS "AXLE_SIMULATED_LIBRARIES=\"${stand_ins}\"")
    if(simulated)
        target_sources(axle PRIVATE $<TARGET_OBJECTS:axle_simulator>)
    endif()
endfunction()

# cuda_tests(): builds tests/cuda/ as test_cuda for a real GPU, unless the build is SIMULATED. Also
# builds it as test_cuda_simulated if the build is SIMULATED or AXLE_SIMULATED_TESTS is ON.
function(cuda_tests)
    file(GLOB sources CONFIGURE_DEPENDS tests/cuda/*_test.cpp)
    if(NOT cuda OR NOT sources)
        return()
    endif()
    if(NOT simulated)
        test_program(test_cuda ${sources})
        if(NOT AXLE_SIMULATED_TESTS)
            return()
        endif()
    endif()
    test_program(test_cuda_simulated ${sources})
    target_compile_definitions(test_cuda_simulated PRIVATE AXLE_SIMULATED_GPU=1)
    target_sources(test_cuda_simulated PRIVATE tests/simulator/plugged_in.cpp)
    if(NOT simulated)
        target_sources(test_cuda_simulated PRIVATE $<TARGET_OBJECTS:axle_simulator>)
    endif()
    set_target_properties(test_cuda_simulated PROPERTIES ENABLE_EXPORTS ON)
    add_dependencies(test_cuda_simulated axle_cublaslt axle_nccl)
    add_test_suites(test_cuda_simulated PREFIX simulated TIMEOUT 900)
    # These tests run without cuBLASLt, and with threads in another order.
    add_test_suites(
        test_cuda_simulated PREFIX simulated_alone TIMEOUT 900
        FILTER *matmul*:*linear*:*feed_forward*:GpuTraining.*
        ENVIRONMENT AXLE_LIBRARY_PATH=${PROJECT_BINARY_DIR}/simulated/no_libraries
        ENVIRONMENT_MODIFICATION AXLE_SIMULATOR_ORDER=set:shuffled)
    # In these tests, the fake cuBLASLt has no algorithm with GELU (bit 32) or its derivative (bit
    # 64).
    add_test_suites(test_cuda_simulated PREFIX simulated_refused TIMEOUT 900
                    FILTER *linear_gelu*:*feed_forward* ENVIRONMENT AXLE_CUBLASLT_REFUSE=96)
    # These tests run with three GPUs.
    add_test_suites(test_cuda_simulated PREFIX simulated_gpus TIMEOUT 900 FILTER AcceleratorDevice.*
                    ENVIRONMENT AXLE_SIMULATOR_DEVICES=3)
    # These tests run on a driver without virtual memory management.
    add_test_suites(test_cuda_simulated PREFIX simulated_segments TIMEOUT 900
                    FILTER GpuMemory.*:GpuAllocator.*:GpuCapture.*
                    ENVIRONMENT AXLE_CUDA_EXPANDABLE=0)
endfunction()

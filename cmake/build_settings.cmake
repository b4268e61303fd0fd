# Compiler settings for Axle's own sources. They apply only in this folder's scope. A project that
# adds Axle as a subdirectory keeps its own settings.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(AXLE_GATE_PACK)  # programs call internal functions of libaxle.so, and share its inline variables
    set(CMAKE_CXX_VISIBILITY_PRESET default)
    set(CMAKE_VISIBILITY_INLINES_HIDDEN OFF)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
endif()
# Position independent code lets users link the archive into their own shared library.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
    get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
    if(NOT CMAKE_BUILD_TYPE AND NOT multi_config)
        set(CMAKE_BUILD_TYPE Release)
    endif()
    find_program(AXLE_CCACHE ccache)
    mark_as_advanced(AXLE_CCACHE)
    if(AXLE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
        set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/cached_compiler)
    endif()
endif()

# With this option and the settings in cached_compiler, ccache compares precompiled headers of GCC
# by their contents, so that clones share objects. The precompiled headers of Clang contain the path
# of the clone.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT AXLE_PRECOMPILE STREQUAL "OFF")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()

# Hot functions request -O3 with attributes; -O3 everywhere costs compile time but is not faster.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
set(cold_options $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-Os>)

# These options make messages contain file names relative to the root.
set(cxx "$<COMPILE_LANGUAGE:CXX>")
add_compile_options(
    "$<${cxx}:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Wpedantic>"
    "$<${cxx}:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>")
if(AXLE_WERROR)
    add_compile_options($<${cxx}:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC reports a false positive for "text" + std::string (bug 105651).
    add_compile_options($<${cxx}:-Wno-restrict>)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND AXLE_PRECOMPILE STREQUAL "ON")
    # With precompiled headers, GCC also reports false positives inside the standard library, but not
    # in tests, which are not optimized.
    add_compile_options($<${cxx}:-Wno-array-bounds> $<${cxx}:-Wno-stringop-overflow>
                        $<${cxx}:-Wno-stringop-overread> $<${cxx}:-Wno-maybe-uninitialized>)
endif()

add_compile_definitions($<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)

# With sections per function, the linker removes kernels that a program does not call.
if(NOT APPLE)
    add_compile_options("$<$<AND:${cxx},$<CONFIG:Release>>:-ffunction-sections;-fdata-sections>")
    add_link_options($<$<CONFIG:Release>:-Wl,--gc-sections>)
endif()

# Some checks of undefined behaviour are disabled, because they multiply the compile time. The address
# sanitizer detects most of the same errors, which are accesses through null or overflowed pointers.
# The code of tests is not checked for undefined behaviour.
set(test_options -O0)
if(AXLE_SANITIZE)
    list(JOIN AXLE_SANITIZE "," sanitizers)
    add_compile_options(
        "$<${cxx}:-fsanitize=${sanitizers};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
    add_link_options(-fsanitize=${sanitizers})
    if("undefined" IN_LIST AXLE_SANITIZE)
        add_compile_options($<${cxx}:-fno-sanitize=null,object-size,pointer-overflow,vptr>)
        list(APPEND test_options -fno-sanitize=undefined)
    endif()
endif()

# In builds with sanitizers, only kernels and layers with hot loops are optimized, which halves the
# compile time of the others (see layer() in CMakeLists.txt).
set(sanitized_options $<$<BOOL:${AXLE_SANITIZE}>:-O1>)
# outline_checks(target): makes the address sanitizer of Clang call functions instead of adding code
# to each memory access. Otherwise, Clang needs minutes for some kernels.
function(outline_checks target)
    if("address" IN_LIST AXLE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        target_compile_options(
            ${target} PRIVATE "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
    endif()
endfunction()

# native_kernels(): with AXLE_NATIVE on x86-64 Linux, compiles each kernel once, for the best
# instruction set of this machine, instead of once for each instruction set.
function(native_kernels)
    if(NOT AXLE_NATIVE OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64"
       OR NOT EXISTS /proc/cpuinfo)
        return()
    endif()
    file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
    string(APPEND flags " ")
    set(machine "")
    set(name baseline)
    if(flags MATCHES " avx2 " AND flags MATCHES " fma " AND flags MATCHES " bmi2 "
       AND flags MATCHES " f16c " AND flags MATCHES " aes ")
        set(machine haswell)
        set(name avx2)
        set(target HWY_AVX2)
    endif()
    if(machine AND flags MATCHES " avx512f " AND flags MATCHES " avx512bw "
       AND flags MATCHES " avx512cd " AND flags MATCHES " avx512dq " AND flags MATCHES " avx512vl ")
        set(machine skylake-avx512)
        set(name avx512)
        set(target HWY_AVX3)
    endif()
    target_compile_definitions(axle_kernels PRIVATE HWY_COMPILE_ONLY_STATIC)
    set_target_properties(axle_kernels PROPERTIES AXLE_NATIVE_NAME ${name})
    if(machine)
        # Highway requires AES for AVX2, and -march=haswell does not include it.
        target_compile_options(axle_kernels PRIVATE -march=${machine} -maes)
        target_compile_definitions(axle_kernels PRIVATE AXLE_NATIVE_TARGET=${target})
    endif()
    if(AXLE_PRECOMPILE STREQUAL "ON")
        target_precompile_headers(axle_kernels PRIVATE kernels/cpu/precompiled.h)
        # With precompiled headers, GCC reports its own AVX-512 intrinsics (bug 105593).
        target_compile_options(
            axle_kernels PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-uninitialized>)
    endif()
endfunction()

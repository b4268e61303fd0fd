# The libraries with which Axle is built. Public headers do not use them, so users of the library
# need only the libraries that programs link: zlib, yaml-cpp, libsodium, PCRE2 and utf8proc. The
# libraries of tests and benchmarks are found in CMakeLists.txt.

# These targets are global, so that targets in a parent folder can link the library.
find_package(Threads REQUIRED GLOBAL)
find_package(ZLIB REQUIRED GLOBAL)

# headers_of(target file package): creates an imported target for the headers of a library.
function(headers_of target file package)
    string(TOUPPER ${target}_INCLUDE_DIR directory)
    find_path(${directory} ${file} PATH_SUFFIXES eigen3)
    if(NOT ${directory})
        message(FATAL_ERROR "axle: ${file} not found: install ${package}, "
                            "or run tools/install_dependencies")
    endif()
    mark_as_advanced(${directory})
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    target_include_directories(${target} SYSTEM INTERFACE ${${directory}})
endfunction()

headers_of(axle_highway hwy/highway.h libhwy-dev)
headers_of(axle_eigen Eigen/Core libeigen3-dev)
headers_of(axle_json nlohmann/json.hpp nlohmann-json3-dev)
headers_of(axle_protozero protozero/pbf_writer.hpp libprotozero-dev)
if(AXLE_BUILD_TOOLS)
    headers_of(axle_cli CLI/CLI.hpp libcli11-dev)
endif()

headers_of(axle_yaml yaml-cpp/yaml.h libyaml-cpp-dev)
headers_of(axle_sodium sodium.h libsodium-dev)
headers_of(axle_pcre2 pcre2.h libpcre2-dev)
headers_of(axle_utf8proc utf8proc.h libutf8proc-dev)
include(${CMAKE_CURRENT_LIST_DIR}/link_library.cmake)
link_library(axle_yaml yaml-cpp libyaml-cpp-dev)
link_library(axle_sodium sodium libsodium-dev)
link_library(axle_pcre2 pcre2-8 libpcre2-dev)
link_library(axle_utf8proc utf8proc libutf8proc-dev)

# The libraries with which Axle is built. Public headers do not use them, so users of the library
# need only the libraries that programs link: zlib, yaml-cpp, libsodium, PCRE2, utf8proc, libjpeg and
# libpng. The libraries of tests and benchmarks are found in CMakeLists.txt.

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
headers_of(axle_rapidjson rapidjson/reader.h rapidjson-dev)
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

# optional_library(target name file library package): creates an imported target for a library that
# decodes images. If it is missing, the target is empty, and the build has no decoder for the format.
# AXLE_HAS_<name> is the result.
#
# These libraries are linked and not opened at run time, because the structures of libjpeg differ
# between its versions. They are linked from archives, so that programs need no further files.
function(optional_library target name file library package)
    set(AXLE_HAS_${name} OFF PARENT_SCOPE)
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    if(AXLE_IMAGES STREQUAL "OFF")
        return()
    endif()
    find_path(AXLE_${name}_INCLUDE_DIR ${file})
    mark_as_advanced(AXLE_${name}_INCLUDE_DIR)
    if(AXLE_${name}_INCLUDE_DIR)
        link_library(${target} ${library} ${package} OPTIONAL)
        get_target_property(linked ${target} INTERFACE_LINK_LIBRARIES)
    endif()
    if(AXLE_${name}_INCLUDE_DIR AND linked)
        set(AXLE_HAS_${name} ON PARENT_SCOPE)
        target_include_directories(${target} SYSTEM INTERFACE ${AXLE_${name}_INCLUDE_DIR})
    elseif(AXLE_IMAGES STREQUAL "ON")
        message(FATAL_ERROR "AXLE_IMAGES=ON, but ${file} or ${library} was not found: "
                            "install ${package}")
    else()
        message(STATUS "axle: no ${name} images: install ${package} to decode them")
    endif()
endfunction()

if(NOT AXLE_IMAGES MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "AXLE_IMAGES=${AXLE_IMAGES}: expected AUTO, ON or OFF")
endif()
optional_library(axle_jpeg JPEG jpeglib.h jpeg libjpeg-dev)
optional_library(axle_png PNG png.h png libpng-dev)
if(AXLE_HAS_PNG)  # the archive of libpng needs these libraries after it
    target_link_libraries(axle_png INTERFACE "$<TARGET_LINKER_FILE:ZLIB::ZLIB>" m)
endif()

# What Axle is built with. None of it shows in a public header, so a user of the library needs none
# of it; tests and benchmarks find their own in CMakeLists.txt.

find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)

# headers_of(target file package): an imported target for a library used by its headers alone.
function(headers_of target file package)
    string(TOUPPER ${target}_INCLUDE_DIR directory)
    find_path(${directory} ${file})
    if(NOT ${directory})
        message(FATAL_ERROR "axle: ${file} not found: install ${package}, "
                            "or run tools/install_dependencies")
    endif()
    mark_as_advanced(${directory})
    add_library(${target} INTERFACE IMPORTED)
    target_include_directories(${target} SYSTEM INTERFACE ${${directory}})
endfunction()

headers_of(axle_highway hwy/highway.h libhwy-dev)
headers_of(axle_json nlohmann/json.hpp nlohmann-json3-dev)
headers_of(axle_protozero protozero/pbf_writer.hpp libprotozero-dev)
if(AXLE_BUILD_TOOLS)
    headers_of(axle_cli CLI/CLI.hpp libcli11-dev)
endif()

# The archive is preferred: a program then runs where no libyaml-cpp.so is installed.
headers_of(axle_yaml yaml-cpp/yaml.h libyaml-cpp-dev)
find_library(AXLE_YAML_ARCHIVE libyaml-cpp.a)
mark_as_advanced(AXLE_YAML_ARCHIVE)
if(AXLE_YAML_ARCHIVE)
    target_link_libraries(axle_yaml INTERFACE ${AXLE_YAML_ARCHIVE})
else()
    find_package(yaml-cpp REQUIRED)
    target_link_libraries(axle_yaml INTERFACE yaml-cpp)
endif()

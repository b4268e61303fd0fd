# Fuzz tests of parsers, for builds with sanitizers. Each file tests/fuzz/<name>_fuzz.cpp is one
# program, fuzz_<name>, that parses arbitrary bytes. The ctest test fuzz.<name> runs the program on
# the inputs in tests/fuzz/corpus/<name>/. With AXLE_BUILD_FUZZERS, libFuzzer generates more inputs
# (see tools/fuzz).

add_library(axle_fuzz OBJECT tests/fuzz/fuzz.cpp)
target_link_libraries(axle_fuzz PUBLIC axle_headers axle)
if(AXLE_BUILD_FUZZERS)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "AXLE_BUILD_FUZZERS: only Clang has libFuzzer; the compiler is "
                            "${CMAKE_CXX_COMPILER_ID}")
    endif()
    target_compile_definitions(axle_fuzz PRIVATE AXLE_LIBFUZZER)
    target_link_options(axle_fuzz PUBLIC -fsanitize=fuzzer)
    # Only the parsers are instrumented for coverage.
    file(GLOB parsers CONFIGURE_DEPENDS data/*.cpp data/files/*.cpp data/images/*.cpp
         data/sentencepiece/*.cpp data/tables/*.cpp data/tokenizers/*.cpp data/webdataset/*.cpp
         accel/config/config.cpp accel/config/deepspeed_*.cpp accel/config/yaml.cpp
         accel/prepare/deepspeed_*.cpp accel/state/checkpoint*.cpp accel/tracking/csv.cpp
         accel/tracking/jsonl.cpp dist/group/tree_bytes.cpp dist/rendezvous/agreements.cpp
         dist/rendezvous/key_store.cpp dist/rendezvous/wire.cpp dist/sharding/deepspeed_*.cpp
         core/files/distributed_*.cpp core/files/file.cpp core/files/pickle.cpp
         core/files/safetensors*.cpp core/files/sharded_folder.cpp core/files/torch_*.cpp
         core/files/zip.cpp core/text/text.cpp core/tree/json.cpp core/tree/tree.cpp
         nn/files/weight_files.cpp nn/models/*_files.cpp nn/models/*/*_files.cpp
         nn/models/pretrained.cpp)
    set_property(SOURCE ${parsers} APPEND PROPERTY COMPILE_OPTIONS -fsanitize=fuzzer-no-link)
    set_property(SOURCE ${parsers} PROPERTY SKIP_PRECOMPILE_HEADERS ON)  # compiled without the option
    # Runs for each input.
    set_property(SOURCE tests/fuzz/json_mutator.cpp PROPERTY COMPILE_OPTIONS -O2)
endif()

# check_instrumented(SOURCE) fails if SOURCE, a fuzzer, includes the header of a parser that is not
# instrumented: libFuzzer would not see which code of the parser its inputs reach.
function(check_instrumented source)
    file(STRINGS ${source} includes
         REGEX "^#include \"(accel|data|dist|nn/files|core/files|core/tree)/")
    foreach(line IN LISTS includes)
        string(REGEX REPLACE "^#include \"(.*)\\.h\"$" "\\1.cpp" implementation "${line}")
        set(implementation ${PROJECT_SOURCE_DIR}/${implementation})
        if(EXISTS ${implementation} AND NOT implementation IN_LIST parsers)
            message(FATAL_ERROR "${source} uses ${implementation}, which is missing in the list "
                                "\"parsers\" of cmake/fuzzers.cmake")
        endif()
    endforeach()
endfunction()

add_custom_target(fuzzers)
file(GLOB sources CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cpp)
foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    string(REGEX REPLACE "_fuzz$" "" name ${name})
    if(AXLE_BUILD_FUZZERS)
        check_instrumented(${source})
    endif()
    add_executable(fuzz_${name} ${source})
    target_link_libraries(fuzz_${name} PRIVATE axle_fuzz)
    if(AXLE_BUILD_FUZZERS AND name STREQUAL "tokenizer_json")
        target_sources(fuzz_${name} PRIVATE tests/fuzz/json_mutator.cpp)
    endif()
    add_dependencies(fuzzers fuzz_${name})
    add_test(NAME fuzz.${name}
             COMMAND fuzz_${name} -runs=0 ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
    set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 120)
endforeach()

# Run as cmake -DFROM=tree -DGENERATED=folder -DTO=folder -P cmake/write_public_headers.cmake
#
# Copies the headers that TO/headers.txt lists to TO/axle, except for private headers. A header that
# is not in FROM is read from GENERATED. Rewrites the includes of the copies as described in
# public_headers.cmake, and writes TO/axle/axle.h. Unchanged files are not written, so that nothing
# is recompiled. Fails if a public header includes a private header or another library.
cmake_minimum_required(VERSION 3.25)

# write_changed(path text): writes the text to the file unless the file contains it already.
function(write_changed path text)
    set(before)
    if(EXISTS ${path})
        file(READ ${path} before)
    endif()
    if(NOT before STREQUAL text)
        file(WRITE ${path} "${text}")
    endif()
endfunction()

# read_header(header result): reads a header from FROM, or from GENERATED if it is not in FROM.
function(read_header header result)
    set(source ${FROM}/${header})
    if(NOT EXISTS ${source})
        set(source ${GENERATED}/${header})
    endif()
    file(READ ${source} text)
    set(${result} "${text}" PARENT_SCOPE)
endfunction()

file(STRINGS ${TO}/headers.txt candidates)
set(headers)
foreach(header IN LISTS candidates)
    read_header(${header} text)
    if(NOT text MATCHES "^// Private to ")
        list(APPEND headers ${header})
    endif()
endforeach()

# Headers that few programs need. <axle/axle.h> does not include them, because each of them would
# slow down the compilation of all programs. Most are raw kernels, parts of trackers, the profiler,
# CUDA graphs, less common file formats, images, tokenizers, objects of DeepSpeed and Megatron-LM, and
# building blocks of other headers.
set(only_by_path
    "^kernels/"
    "^accel/config/(config|structured_config|yaml)[.]h"
    "^accel/tracking/(append_file|csv|histogram|image|jsonl|mlflow|png|tensorboard)[.]h"
    "^accel/megatron/megatron_(engine|network)[.]h"
    "^accel/prepare/deepspeed_objects[.]h"
    "^accel/utils/text[.]h"
    "^core/(cuda/graph|float8|launch|linalg|sampling|spatial)[.]h"
    "^core/system/numerics[.]h"
    "^core/attention/(attention_part|paged_attention)[.]h"
    "^core/autograd/deferred[.]h"
    "^core/files/(distributed_checkpoint|distributed_metadata|dlpack|dlpack_abi|file|torch_file)[.]h"
    "^core/memory/owning_ptr[.]h"
    "^core/(distributions|profiler|text)/"
    "^data/files/(cifar|idx|npy|npz|token_writer)[.]h"
    "^data/tables/text_reader[.]h"
    "^data/(corpora|images|sentencepiece|tokenizers|webdataset)/"
    "^dist/group/backends[.]h"
    "^dist/group/mesh_drawing[.]h"
    "^dist/(ops|parallel)/"
    "^dist/pipeline/drawing[.]h"
    "^dist/pipeline/(simulation|stage_plan)[.]h"
    "^dist/sharding/deepspeed_checkpoint[.]h"
    "^nn/layers/spatial/"
    "^nn/models/transformer[.]h"
    "^nn/models/(text|vision)/"
    "^nn/(adapters|precision)/"
    "^nn/layers/parametrize/orthogonal[.]h"
    "^optim/algorithms/(adamw_8bit|lookahead|prodigy|sparse_adam)[.]h"
    "^optim/state_file[.]h")
set(in_umbrella ${headers})
foreach(pattern IN LISTS only_by_path)
    list(FILTER in_umbrella EXCLUDE REGEX "${pattern}")
endforeach()
list(APPEND in_umbrella kernels/thread_pool.h)

set(complaints)
set(umbrella)
foreach(header IN LISTS headers)
    read_header(${header} text)
    string(REGEX MATCHALL "#include \"[^\"\n]*\"" includes "${text}")
    foreach(include IN LISTS includes)
        string(REGEX REPLACE ".*\"(.*)\"" "\\1" path "${include}")
        if(NOT path IN_LIST headers)
            list(APPEND complaints "${header}: public, but includes ${path}, which is not")
        endif()
    endforeach()
    string(REGEX MATCHALL "#include <[^>\n]*(/|\\.h>)" includes "${text}")
    list(REMOVE_ITEM includes "#include <stdint.h>")  # a header of C
    foreach(include IN LISTS includes)
        list(APPEND complaints "${header}: public, but needs another library: ${include}")
    endforeach()
    string(REGEX REPLACE "#include \"([^\"\n]*)\"" "#include <axle/\\1>" text "${text}")
    write_changed(${TO}/axle/${header} "${text}")
    if(header IN_LIST in_umbrella)
        string(APPEND umbrella "#include <axle/${header}>\n")
    endif()
endforeach()
if(complaints)
    list(JOIN complaints "\n" complaints)
    message("${complaints}")
    message(FATAL_ERROR "public headers include headers that are not installed with Axle: "
                        "include less, or let them begin with `// Private to ...`")
endif()

write_changed(${TO}/axle/axle.h "// The headers that programs use most. Others, such as the raw kernels in <axle/kernels/...>, are
// included by their path.
#pragma once

#if __cplusplus < 202002L
#error \"Axle needs C++20: compile with -std=c++20\"
#endif

${umbrella}")

# Removes copies of headers that are no longer public.
file(GLOB_RECURSE there RELATIVE ${TO}/axle ${TO}/axle/*)
list(REMOVE_ITEM there ${headers} axle.h)
foreach(header IN LISTS there)
    file(REMOVE ${TO}/axle/${header})
endforeach()

# Checks the layers: a folder may include only headers of lower folders.
#
#     cmake [-DROOT=folder] -P tools/check_layers.cmake
#
# The command above reads the allowed dependencies from the layer() lines of ROOT/CMakeLists.txt and
# checks all includes of Axle's files. It prints one line for each include that violates the layers,
# is not relative to the root, or names a header of another folder that begins with "// Private to
# <folder>". Tests may include all headers. It also prints a line for each folder with more than 30
# sources, and for each source with more than 400 lines.
cmake_minimum_required(VERSION 3.25)

if(NOT DEFINED ROOT)
    cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH ROOT)
endif()

# <layer>_may is the list of folders that a layer may include, including indirect dependencies.
file(READ ${ROOT}/CMakeLists.txt text)
string(REGEX MATCHALL "\nlayer\\([^)]*\\)" calls "${text}")
foreach(call IN LISTS calls)
    string(REGEX MATCHALL "[A-Za-z_.]+" words "${call}")
    list(POP_FRONT words keyword name)
    cmake_parse_arguments(layer "" "" "USES;FOLDERS;WITH;LINKS" ${words})
    set(${name}_folders ${layer_FOLDERS})
    set(${name}_may ${name})
    foreach(lower IN LISTS layer_USES)
        if(NOT lower IN_LIST layers)
            message(FATAL_ERROR "CMakeLists.txt: layer ${name} uses ${lower}, which no line above "
                                "it defines")
        endif()
        list(APPEND ${name}_may ${${lower}_may})
    endforeach()
    list(REMOVE_DUPLICATES ${name}_may)
    list(APPEND layers ${name})
endforeach()
if(NOT layers)
    message(FATAL_ERROR "${ROOT}/CMakeLists.txt: no layer() line")
endif()

# These folders are above the layers and may include all layers. Tests and benchmarks may also
# include parts of programs, and benchmarks the op cases of the tests.
set(tests_may tests tools ${layers})
set(bench_may bench tests tools ${layers})
set(tools_may tools ${layers})
set(folders ${layers} tests bench tools)

# line_of(text part result) sets `result` to the number of the line on which `part` ends.
function(line_of text part result)
    string(FIND "${text}" "${part}" start)
    string(LENGTH "${part}" length)
    math(EXPR end "${start} + ${length}")
    string(SUBSTRING "${text}" 0 ${end} head)
    string(REGEX MATCHALL "\n" newlines "${head}")
    list(LENGTH newlines count)
    math(EXPR count "${count} + 1")
    set(${result} ${count} PARENT_SCOPE)
endfunction()

# is_closed(path folder result) sets `result` to whether the header is private to another folder.
function(is_closed path folder result)
    set(${result} FALSE PARENT_SCOPE)
    if(folder STREQUAL "tests" OR NOT EXISTS ${ROOT}/${path})
        return()
    endif()
    file(STRINGS ${ROOT}/${path} first LIMIT_COUNT 1)
    if(first MATCHES "^// Private to ([a-z]+)[:/]" AND NOT CMAKE_MATCH_1 STREQUAL folder)
        set(${result} TRUE PARENT_SCOPE)
    endif()
endfunction()

# rank_of(path folder result) sets `result` to the index of path's subfolder in the layer's FOLDERS,
# or -1.
function(rank_of path folder result)
    set(${result} -1 PARENT_SCOPE)
    string(REGEX REPLACE "^${folder}/" "" rest "${path}")
    string(REGEX REPLACE "/.*" "" subfolder "${rest}")
    if(subfolder STREQUAL rest)
        set(subfolder .)
    endif()
    if(${folder}_folders)
        list(FIND ${folder}_folders ${subfolder} rank)
        set(${result} ${rank} PARENT_SCOPE)
    endif()
endfunction()

# is_later(file path folder result) sets `result` to whether the header `file` includes a header of
# a later subfolder. A subfolder is later if FOLDERS lists it after the subfolder of `file`, or does
# not list it. Sources may include all folders of their layer.
function(is_later file path folder result)
    set(${result} FALSE PARENT_SCOPE)
    if(NOT file MATCHES "\\.(h|inl|cuh)$")
        return()
    endif()
    rank_of(${file} ${folder} own)
    rank_of(${path} ${folder} other)
    if(other GREATER own OR own EQUAL -1 OR other EQUAL -1)
        set(${result} TRUE PARENT_SCOPE)
    endif()
endfunction()

set(complaints)
foreach(folder IN LISTS folders)
    file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.inl
         ${ROOT}/${folder}/*.cpp ${ROOT}/${folder}/*.cu ${ROOT}/${folder}/*.cuh)
    foreach(file IN LISTS files)
        file(READ ${ROOT}/${file} text)
        string(REGEX MATCHALL "\n" newlines "${text}")
        list(LENGTH newlines count)
        if(count GREATER 400)
            list(APPEND complaints "${file}: has ${count} lines: at most 400")
        endif()
        cmake_path(GET file PARENT_PATH parent)
        list(APPEND parents ${parent})
        math(EXPR files_in_${parent} "0${files_in_${parent}} + 1")
        string(REGEX MATCHALL "(^|\n)[ \t]*#[ \t]*include[ \t]*[\"<][^\">\n]+[\">]" includes
               "${text}")
        foreach(include IN LISTS includes)
            string(REGEX REPLACE ".*[\"<]([^\">]+)[\">]$" "\\1" path "${include}")
            string(REGEX REPLACE "/.*" "" target "${path}")
            cmake_path(GET file PARENT_PATH here)
            if(target STREQUAL folder AND ${folder}_folders)
                is_later(${file} ${path} ${folder} later)
                if(NOT later)
                    continue()
                endif()
                list(JOIN ${folder}_folders " " order)
                set(why "headers of ${folder} include in this order only: ${order}")
            elseif(target IN_LIST ${folder}_may)
                is_closed(${path} ${folder} closed)
                if(NOT closed)
                    continue()
                endif()
                set(why "private to ${target}")
            elseif(target IN_LIST folders)
                list(JOIN ${folder}_may " " may)
                set(why "no arrow ${folder} -> ${target} (${folder} may include: ${may})")
            elseif(path MATCHES "^\\.\\.?/"
                   OR (include MATCHES "\"$" AND EXISTS ${ROOT}/${here}/${path}))
                set(why "write the path from the root")
            else()
                continue()
            endif()
            line_of("${text}" "${include}" line)
            list(APPEND complaints "${file}:${line}: includes ${path}: ${why}")
        endforeach()
    endforeach()
endforeach()

list(REMOVE_DUPLICATES parents)
foreach(parent IN LISTS parents)
    if(files_in_${parent} GREATER 30)
        list(APPEND complaints "${parent}: has ${files_in_${parent}} sources: at most 30")
    endif()
endforeach()

if(complaints)
    list(JOIN complaints "\n" complaints)
    message("${complaints}")
    message(FATAL_ERROR "the sources break the rules of the layers")
endif()

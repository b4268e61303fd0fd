# unity(target): if AXLE_UNITY is ON, compiles the sources of a target in groups of up to 16. This
# reduces the compile time to between a fifth and a half, because sources include the same headers
# and instantiate the same templates. A compiler process needs up to about 1.5 GB. Sources that
# define the same name are in different groups.
#
# The sources below are compiled alone. In module_call.cpp, names of a using-directive or of a nested
# class conflict with other sources of the target. A new conflict is a compile error; to fix it,
# rename a symbol or add the source to this list. The others call PCRE2, libjpeg or libpng: a program
# that uses none of them does not need these libraries.
set(compiled_alone
    nn/module_call.cpp
    core/text/pattern.cpp
    data/images/decode.cpp
    data/images/image_folder.cpp
    data/images/jpeg.cpp
    data/images/png.cpp
    data/webdataset/web_dataset.cpp
    nn/adapters/lora.cpp
    nn/adapters/lora_config.cpp
    nn/adapters/lora_files.cpp
    nn/layers/linear_selection.cpp
    nn/precision/layerwise_casting.cpp
    nn/precision/quantized_linear.cpp)
# By default, GCC runs its garbage collection so often that it takes an eighth of the compile time
# of a large source.
if(AXLE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(
        "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-expand=400 --param ggc-min-heapsize=524288>")
endif()

list(TRANSFORM compiled_alone PREPEND ${PROJECT_SOURCE_DIR}/)

# defined_names(result source): sets `result` to the names of classes, aliases, constants and
# functions that are defined at the start of a line. Names of tests are left out.
function(defined_names result source)
    file(STRINGS ${source} lines REGEX "^[A-Za-z[].*[({=;]")
    list(FILTER lines EXCLUDE REGEX "^(TEST|TYPED_TEST|INSTANTIATE|namespace|using|return)")
    set(names)
    foreach(line IN LISTS lines)
        if(line MATCHES "^constexpr ")  # may define several constants
            string(REGEX MATCHALL " [A-Za-z0-9_]+( =|\\[|{|\\()" constants "${line}")
            list(TRANSFORM constants REPLACE "^ ([A-Za-z0-9_]+).*" "\\1")
            list(APPEND names ${constants})
        elseif(line MATCHES "^(struct|class|enum class|enum) ([A-Za-z0-9_]+) *[:{;]")
            list(APPEND names ${CMAKE_MATCH_2})
        elseif(line MATCHES "^[^({=;]*[ *&]([A-Za-z0-9_]+)(\\[[^]]*\\])? ?[({=;]")
            list(APPEND names ${CMAKE_MATCH_1})
        endif()
    endforeach()
    set(${result} ${names} PARENT_SCOPE)
endfunction()

function(unity target)
    if(NOT AXLE_UNITY)
        return()
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    set(groups 0)
    foreach(source IN LISTS sources)
        cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
        if(source IN_LIST compiled_alone)
            continue()
        endif()
        defined_names(names ${source})
        set(group 0)
        while(group LESS groups)  # finds the first group with space that has none of the names
            set(conflict FALSE)
            foreach(name IN LISTS names)
                if(name IN_LIST names_${group})
                    set(conflict TRUE)
                    break()
                endif()
            endforeach()
            if(NOT conflict AND count_${group} LESS 16)
                break()
            endif()
            math(EXPR group "${group} + 1")
        endwhile()
        if(group EQUAL groups)
            math(EXPR groups "${groups} + 1")
            set(names_${group})
            set(count_${group} 0)
        endif()
        list(APPEND names_${group} ${names})
        math(EXPR count_${group} "${count_${group}} + 1")
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endforeach()
endfunction()

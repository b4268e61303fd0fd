# unity(target): if AXLE_UNITY is ON, compiles the sources of a target in groups of 8, which takes a
# fifth to a half of the time, because sources include the same headers and instantiate the same
# templates. The sources below are compiled alone: their using-directives, or names in their unnamed
# namespaces, conflict with other sources of the target. A new conflict is a compile error: rename,
# or add the source.
set(compiled_alone
    nn/module_call.cpp)
set_source_files_properties(${compiled_alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

function(unity target)
    if(AXLE_UNITY)
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    endif()
endfunction()
